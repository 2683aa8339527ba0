"""The embeddings of tokens."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.layers.dense import gathered_as, parameter


def token_table(module: nn.Module, init: Any) -> jax.Array:
    """The parameter "token" of a module with a `spec`: [V, D]."""
    spec = module.spec
    names, shape = (axes.VOCAB, axes.EMBED), (spec.padded_vocab_size, spec.hidden_size)
    return parameter(module, "token", names, shape, init, gathered_as(spec))


@jax.custom_vjp
def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
    """The rows of `table`, [V, D], that have these numbers: [..., D], float32.

    The gradient of a row is summed in float32, because a frequent token is there thousands of
    times. Then it gets the dtype of the table, as the decoder's gradient has it. So XLA adds both
    before it sums them over the devices.
    """
    return table[ids].astype(jnp.float32)


def _look_up_forward(table, ids):
    return look_up(table, ids), (jnp.empty((0, *table.shape), table.dtype), ids)


def _look_up_backward(kept, gradient):
    like, ids = kept
    whole = jax.ShapeDtypeStruct(like.shape[1:], jnp.float32)
    (d_table,) = jax.linear_transpose(lambda table: table[ids], whole)(gradient)
    return d_table.astype(like.dtype), None


look_up.defvjp(_look_up_forward, _look_up_backward)
