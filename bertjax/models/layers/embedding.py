"""The look-up of token embeddings."""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def embedding_lookup(table: jax.Array, ids: jax.Array) -> jax.Array:
    """The rows of `table`, [V, D], that have these numbers: [..., D], float32.

    The gradient of a row is summed in float32, because a frequent token occurs thousands of times.
    Then it is cast to the dtype of the table, which is also that of the decoder's gradient, so that
    XLA adds the two before it sums over the devices.
    """
    return table[ids].astype(jnp.float32)


def _lookup_forward(
    table: jax.Array, ids: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return embedding_lookup(table, ids), (jnp.empty((0, *table.shape), table.dtype), ids)


def _lookup_backward(
    residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, None]:
    like, ids = residuals
    whole = jax.ShapeDtypeStruct(like.shape[1:], jnp.float32)
    (d_table,) = jax.linear_transpose(lambda table: table[ids], whole)(gradient)
    return d_table.astype(like.dtype), None


embedding_lookup.defvjp(_lookup_forward, _lookup_backward)
