"""`jax.nn.dot_product_attention`: cuDNN's kernel on a GPU in bfloat16, XLA's elsewhere."""

from functools import partial

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import Drop, Mask, Pattern, visible


def fused_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: Pattern,
    *,
    bias: jax.Array | None = None,
    drop: Drop | None = None,
) -> jax.Array:
    """See `bertjax.models.attention.contract`; it cannot drop probabilities.

    The platform is chosen inside the compiled program, so that a program that is compiled for
    another device uses that device's kernel.
    """
    del drop
    seen = visible(mask, pattern, query.shape[1])
    seen = jnp.broadcast_to(seen, (*seen.shape[:2], query.shape[1], key.shape[1]))
    attend = jax.nn.dot_product_attention
    by_xla = partial(attend, implementation="xla")
    if query.dtype != jnp.bfloat16:
        return by_xla(query, key, value, bias, seen)
    by_cudnn = partial(attend, implementation="cudnn")
    inputs = query, key, value, bias, seen
    return jax.lax.platform_dependent(*inputs, cuda=by_cudnn, default=by_xla)


def fused_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: Pattern,
    *,
    drop: Drop | None = None,
) -> jax.Array:
    """See `bertjax.models.attention.contract`."""
    query, key, value = (qkv[:, :, i] for i in range(3))
    return fused_attention(query, key, value, mask, pattern, drop=drop)
