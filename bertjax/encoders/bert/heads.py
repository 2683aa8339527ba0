"""BERT's own heads (sections 3.1 and 4): the pooler, and the masked-LM head."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.bert.spec import BertSpec
from bertjax.layers.activation import activation
from bertjax.layers.decoder import tied_logits
from bertjax.layers.dense import Dense
from bertjax.layers.norm import LayerNorm


class Pooler(nn.Module):
    """The [CLS] vector through a dense layer and tanh: [B, S, D] -> [B, D]."""

    spec: BertSpec

    @nn.compact
    def __call__(self, sequence: jax.Array, input_mask: jax.Array) -> jax.Array:
        """sequence: [B, S, D]; input_mask is not used."""
        del input_mask
        width = self.spec.hidden_size
        dense = Dense(self.spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="dense")
        return jnp.tanh(dense(sequence[:, 0]))


class MaskedLanguageModel(nn.Module):
    """Dense, gelu, norm, then the tied decoder: [B, P, D] -> logits [B, P, V], float32."""

    spec: BertSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """hidden: [B, P, D]; token_embedding: [V, D]."""
        spec, width = self.spec, self.spec.hidden_size
        dense = Dense(spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="transform")
        hidden = LayerNorm(spec, axes.EMBED_OUT, name="norm")(activation(spec, dense(hidden)))
        return tied_logits(self, hidden, token_embedding)
