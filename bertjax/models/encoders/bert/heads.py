"""BERT's own heads (sections 3.1 and 4): the pooler, and the masked-LM head."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.spec import BertSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.pooling import one_token


def square_dense(spec: BertSpec, name: str) -> Dense:
    """A dense layer [..., D] -> [..., D]."""
    width, init = spec.hidden_size, nn.initializers.truncated_normal(spec.initializer_range)
    return Dense({axes.EMBED: width}, {axes.EMBED_OUT: width}, init, spec.precision, name=name)


class Pooler(nn.Module):
    """The vector of one token through a dense layer and tanh: [B, S, D] -> [B, D].

    Attributes:
      last: whether it is the last token instead of [CLS].
    """

    spec: BertSpec
    last: bool = False

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]."""
        del deterministic
        x = one_token(states, mask, self.last)
        return jnp.tanh(square_dense(self.spec, "dense")(x))


def readout(spec: BertSpec, kind: str) -> Pooler:
    """The pooler.

    A classifier that reads left to right takes the last token, the final [SEP], because [CLS] sees
    no other token there (as in GPT; Radford et al., 2018).
    """
    return Pooler(spec, spec.causal and kind in kinds.OF_WHOLE_TEXTS, name="pooler")


class MaskedLanguageModel(nn.Module):
    """Dense, gelu, norm, then the tied decoder: [B, P, D] -> logits [B, P, V], float32."""

    spec: BertSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, D]."""
        spec = self.spec
        x = activation(spec.hidden_act, square_dense(spec, "transform")(x))
        x = LayerNorm(axes.EMBED_OUT, spec.layer_norm_eps, name="norm")(x)
        size, zeros = (spec.padded_vocab_size,), nn.initializers.zeros
        bias = parameter(self, "bias", (axes.VOCAB,), size, zeros)
        return decode(
            x, token_embedding, bias, vocab_size=spec.vocab_size, precision=spec.precision
        )
