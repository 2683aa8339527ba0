"""The decoder of language-model heads: a product with a table that has a row for each piece."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.layers.dense import Precision, product


def decode(
    x: jax.Array,
    table: jax.Array,
    bias: jax.Array | None,
    *,
    vocab_size: int,
    precision: Precision,
) -> jax.Array:
    """The logit of each piece: [B, P, D], [V, D] and [V] -> [B, P, V], float32.

    Rows of the table from `vocab_size` on are padding: their logit is the lowest, so that they
    change no loss.
    """
    logits = product("bpd,vd->bpv", x, table, precision, "float32")
    logits = logits if bias is None else logits + bias
    logits = nn.with_logical_constraint(logits, (axes.BATCH, None, axes.ACTIVATION_VOCAB))
    if len(table) == vocab_size:
        return logits
    return jnp.where(jnp.arange(len(table)) < vocab_size, logits, jnp.finfo(jnp.float32).min)
