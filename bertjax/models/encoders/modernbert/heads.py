"""ModernBERT's own heads: a dense layer, gelu and a norm stand before every output layer."""

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.modernbert.encoder import into_residual
from bertjax.models.encoders.modernbert.spec import ModernBertSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.pooling import mean_of_tokens, one_token


def _head(spec: ModernBertSpec, x: jax.Array) -> jax.Array:
    """Dense, gelu, norm, as parts of the module that calls it."""
    dense = Dense(
        {axes.EMBED: spec.hidden_size},
        {axes.EMBED_OUT: spec.hidden_size},
        into_residual(spec),
        spec.precision,
        use_bias=False,
        name="dense",
    )
    x = activation(spec.hidden_act, dense(x))
    return LayerNorm(axes.EMBED_OUT, spec.layer_norm_eps, use_bias=False, name="norm")(x)


class PredictionHead(nn.Module):
    """Dense, gelu, norm: [..., D] -> [..., D]."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return _head(self.spec, x)


class Pooler(nn.Module):
    """The vector of [CLS], or the mean of all tokens, through the head: [B, S, D] -> [B, D].

    Left to right, the last token stands for [CLS], which sees no other there.
    """

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]."""
        del deterministic
        if self.spec.classifier_pooling == "cls":
            return _head(self.spec, one_token(states, mask, self.spec.causal))
        return _head(self.spec, mean_of_tokens(states, mask))


def readout(spec: ModernBertSpec, kind: str) -> Pooler:
    """The pooler, for all kinds of models."""
    del kind
    return Pooler(spec, name="pooler")


class MaskedLanguageModel(nn.Module):
    """The head, then the tied decoder: [B, P, D] -> logits [B, P, V], float32."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, D]."""
        spec = self.spec
        x = PredictionHead(spec, name="head")(x)
        size, zeros = (spec.padded_vocab_size,), nn.initializers.zeros
        bias = parameter(self, "bias", (axes.VOCAB,), size, zeros)
        return decode(
            x, token_embedding, bias, vocab_size=spec.vocab_size, precision=spec.precision
        )
