"""The positions of tokens in rows of packed documents."""

import jax
import jax.numpy as jnp


def positions_of(documents: jax.Array) -> jax.Array:
    """The position of each token in its own document, from 0: int [B, S] -> int32 [B, S].

    Args:
      documents: a number for each token's document; the tokens of a document are side by side, and
        neighbouring documents have different numbers (`bertjax.base.fields.DOCUMENTS`). Padding
        counts as a document.
    """
    column = jax.lax.broadcasted_iota(jnp.int32, documents.shape, 1)
    begins = documents[:, 1:] != documents[:, :-1]
    begins = jnp.pad(begins, ((0, 0), (1, 0)), constant_values=True)
    return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)
