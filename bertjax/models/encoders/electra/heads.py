"""ELECTRA's own heads, as transformers has them (modeling_electra.py)."""

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.heads import square_dense
from bertjax.models.encoders.electra.spec import ElectraSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.pooling import one_token


class Readout(nn.Module):
    """The vector of [CLS], or left to right of the last token, through a dense layer and gelu.

    Attributes:
      rate: the rate of dropout before the layer.
    """

    spec: ElectraSpec
    rate: float = 0.0

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]. Returns [B, D]."""
        x = one_token(states, mask, self.spec.causal)
        x = Dropout(self.rate, name="dropout")(x, deterministic)
        return activation("gelu", square_dense(self.spec, "dense")(x))


def readout(spec: ElectraSpec, kind: str) -> Readout:
    """A layer of the classifier, or the summary of a choice; both are new in each task."""
    if kind == kinds.MULTIPLE_CHOICE:
        return Readout(spec, name="summary")
    return Readout(spec, spec.hidden_dropout_prob, name="classifier_dense")


class MaskedLanguageModel(nn.Module):
    """The generator's: dense, gelu, norm, tied decoder: [B, P, D] -> logits [B, P, V], float32."""

    spec: ElectraSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, E]."""
        spec, init = self.spec, nn.initializers.truncated_normal(self.spec.initializer_range)
        sides = {axes.EMBED: spec.hidden_size}, {axes.EMBED_OUT: spec.embedding_size}
        x = activation("gelu", Dense(*sides, init, spec.precision, name="transform")(x))
        x = LayerNorm(axes.EMBED_OUT, spec.layer_norm_eps, name="norm")(x)
        size, zeros = (spec.padded_vocab_size,), nn.initializers.zeros
        bias = parameter(self, "bias", (axes.VOCAB,), size, zeros)
        return decode(
            x, token_embedding, bias, vocab_size=spec.vocab_size, precision=spec.precision
        )
