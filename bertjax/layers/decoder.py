"""The decoder of masked-LM heads, which is tied to the embeddings of the tokens."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.layers.dense import parameter, product


def tied_logits(module: nn.Module, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
    """The product with the embeddings, and a bias: [B, P, D], [V, D] -> [B, P, V], float32.

    The rows that pad the vocabulary get the lowest logit, so that they change no loss.

    Args:
      module: a head with a `spec`, called in its compact method; it gets the parameter "bias".
    """
    spec = module.spec
    bias = parameter(
        module, "bias", (axes.VOCAB,), (spec.padded_vocab_size,), nn.initializers.zeros
    )
    logits = product("bpd,vd->bpv", hidden, token_embedding, spec, jnp.dtype("float32"))
    logits = nn.with_logical_constraint(
        logits + bias, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_VOCAB)
    )
    if spec.padded_vocab_size == spec.vocab_size:
        return logits
    real = jnp.arange(spec.padded_vocab_size) < spec.vocab_size
    return jnp.where(real, logits, jnp.finfo(jnp.float32).min)
