"""The positions of tokens in rows of packed documents, and of tokens that are read one by one."""

import jax
import jax.numpy as jnp


def positions_of(segment_ids: jax.Array) -> jax.Array:
    """The position of each token in its own document, from 0: int [B, S] -> int32 [B, S].

    The tokens of a document are side by side, and the next document has another number. Padding
    counts as a document.
    """
    column = jax.lax.broadcasted_iota(jnp.int32, segment_ids.shape, 1)
    begins = segment_ids[:, 1:] != segment_ids[:, :-1]
    begins = jnp.pad(begins, ((0, 0), (1, 0)), constant_values=True)
    return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)


def last_positions(mask: jax.Array) -> jax.Array:
    """The position of the last token of each row: int [B, T], 1 on its tokens -> int [B, 1]."""
    return mask.sum(1, keepdims=True) - 1
