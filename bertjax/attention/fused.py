"""`jax.nn.dot_product_attention`: cuDNN's kernel on a GPU in bfloat16, XLA's elsewhere."""

from functools import partial

import jax
import jax.numpy as jnp

from bertjax.attention.contract import Keys, Pattern, visible


def fused_attention(qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """See `bertjax.attention.contract`; it cannot drop probabilities.

    The platform is chosen inside the compiled program, so that a program for a device that is not
    there takes that device's kernel.
    """
    del rate, seed
    mask = visible(keys, pattern)
    mask = jnp.broadcast_to(mask, (*mask.shape[:2], qkv.shape[1], qkv.shape[1]))
    by_xla = partial(_attend, implementation="xla")
    if qkv.dtype != jnp.bfloat16:
        return by_xla(qkv, mask)
    by_cudnn = partial(_attend, implementation="cudnn")
    return jax.lax.platform_dependent(qkv, mask, cuda=by_cudnn, default=by_xla)


def _attend(qkv: jax.Array, mask: jax.Array, implementation: str) -> jax.Array:
    query, key, value = (qkv[:, :, i] for i in range(3))
    return jax.nn.dot_product_attention(query, key, value, mask=mask, implementation=implementation)
