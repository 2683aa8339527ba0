"""ModernBERT's own heads: a dense layer, gelu and a norm stand before every output layer."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.modernbert.encoder import into_residual
from bertjax.encoders.modernbert.spec import ModernBertSpec
from bertjax.layers.activation import activation
from bertjax.layers.decoder import tied_logits
from bertjax.layers.dense import Dense
from bertjax.layers.norm import LayerNorm


class PredictionHead(nn.Module):
    """Dense, gelu, norm: [..., D] -> [..., D]."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        spec, width = self.spec, self.spec.hidden_size
        sides = {axes.EMBED: width}, {axes.EMBED_OUT: width}
        y = activation(spec, Dense(spec, *sides, into_residual, use_bias=False, name="dense")(x))
        return LayerNorm(spec, axes.EMBED_OUT, use_bias=False, name="norm")(y)


class Pooler(PredictionHead):
    """The vector of [CLS], or the mean of all tokens, through the head: [B, S, D] -> [B, D]."""

    def __call__(self, sequence: jax.Array, input_mask: jax.Array) -> jax.Array:
        """sequence: [B, S, D]; input_mask: int [B, S]."""
        if self.spec.classifier_pooling == "cls":
            return super().__call__(sequence[:, 0])
        mask = input_mask[..., None].astype(jnp.float32)
        mean = (sequence * mask).sum(1) / jnp.maximum(mask.sum(1), 1)
        return super().__call__(mean.astype(sequence.dtype))


class MaskedLanguageModel(nn.Module):
    """The head, then the tied decoder: [B, P, D] -> logits [B, P, V], float32."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """hidden: [B, P, D]; token_embedding: [V, D]."""
        hidden = PredictionHead(self.spec, name="head")(hidden)
        return tied_logits(self, hidden, token_embedding)
