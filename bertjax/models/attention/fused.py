"""`jax.nn.dot_product_attention`: cuDNN's kernel on a GPU in bfloat16, XLA's elsewhere."""

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.layers.platform import platform


def fused_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    bias: jax.Array | None = None,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    """See `bertjax.models.attention.contract`; it cannot drop probabilities."""
    del drop
    seen = visible(mask, pattern, query.shape[1])
    seen = jnp.broadcast_to(seen, (*seen.shape[:2], query.shape[1], key.shape[1]))
    by_cudnn = query.dtype == jnp.bfloat16 and platform() == "gpu"
    return jax.nn.dot_product_attention(
        *(query, key, value, bias, seen), implementation="cudnn" if by_cudnn else "xla"
    )


def fused_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    query, key, value = (qkv[:, :, i] for i in range(3))
    return fused_attention(query, key, value, mask, pattern, drop=drop)
