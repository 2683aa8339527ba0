"""BERT's own heads (sections 3.1 and 4): the pooler, and the masked-LM head."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.bert.spec import BertSpec
from bertjax.layers.activation import activation
from bertjax.layers.dense import Dense, parameter, product
from bertjax.layers.norm import LayerNorm


class Pooler(nn.Module):
    """The [CLS] vector through a dense layer and tanh: [B, S, D] -> [B, D]."""

    spec: BertSpec

    @nn.compact
    def __call__(self, sequence: jax.Array) -> jax.Array:
        width = self.spec.hidden_size
        dense = Dense(self.spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="dense")
        return jnp.tanh(dense(sequence[:, 0]))


class MaskedLanguageModel(nn.Module):
    """Transform, then the tied decoder: [B, P, D] -> logits [B, P, V], float32.

    The rows that pad the vocabulary get the lowest logit, so that they change no loss.
    """

    spec: BertSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
        spec, width = self.spec, self.spec.hidden_size
        dense = Dense(spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="transform")
        hidden = LayerNorm(spec, axes.EMBED_OUT, name="norm")(activation(spec, dense(hidden)))
        bias = parameter(
            self, "bias", (axes.VOCAB,), (spec.padded_vocab_size,), nn.initializers.zeros
        )
        logits = product("bpd,vd->bpv", hidden, token_embedding, spec, jnp.dtype("float32"))
        logits = nn.with_logical_constraint(
            logits + bias, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_VOCAB)
        )
        if spec.padded_vocab_size == spec.vocab_size:
            return logits
        real = jnp.arange(spec.padded_vocab_size) < spec.vocab_size
        return jnp.where(real, logits, jnp.finfo(jnp.float32).min)
