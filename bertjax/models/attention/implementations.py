"""Attention, and self-attention by the ways that `bertjax.models.attention.choice` chooses."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from bertjax.models.attention.choice import BLOCKS, CUDNN, EINSUM, FLASH, FUSED, KERNEL
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.disentangled import Distances, with_bias
from bertjax.models.attention.einsum import einsum_attention, einsum_self_attention
from bertjax.models.attention.fused import fused_attention, fused_self_attention
from bertjax.models.attention.library_kernels import cudnn_self_attention, flash_self_attention
from bertjax.models.attention.local import local_self_attention
from bertjax.models.layers.platform import platform
from bertjax.models.layers.rotary import Rotation, rotated

# Query [B, S, N, H], key and value [B, S, K, H] apart; or as one array, [B, S, 3, N, H].
Qkv = jax.Array | tuple[jax.Array, jax.Array, jax.Array]
_OF_JOINED: Mapping[str, Callable[..., jax.Array]] = {
    EINSUM: einsum_self_attention,
    BLOCKS: local_self_attention,
    FUSED: fused_self_attention,
}
_OF_APART: Mapping[str, Callable[..., jax.Array]] = {
    EINSUM: einsum_attention,
    FUSED: fused_attention,
    FLASH: flash_self_attention,
    CUDNN: cudnn_self_attention,
}


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    mask: jax.Array,
    segment_ids: jax.Array | None = None,
    query_segment_ids: jax.Array | None = None,
    bias: jax.Array | None = None,
    causal: bool = False,
    window: int | None = None,
    drop: DropoutSpec | None = None,
    implementation: str = EINSUM,
) -> jax.Array:
    """`bertjax.models.attention.contract`, by einsum or "fused"; `mask` is `Mask.keys`."""
    seen = Mask(mask, segment_ids, query_segment_ids)
    attend = fused_attention if implementation == FUSED else einsum_attention
    return attend(query, key, value, seen, AttentionPattern(causal, window), bias=bias, drop=drop)


def self_attention(
    qkv: Qkv,
    mask: Mask,
    pattern: AttentionPattern,
    rotation: Rotation | None = None,
    distances: Distances | None = None,
    *,
    drop: DropoutSpec | None = None,
    way: str,
    remat: bool = False,
) -> jax.Array:
    """Attention of the tokens of a sequence to each other: [B, S, N, H].

    Args:
      qkv: a tuple where `is_split` is true.
      rotation: if given, it turns queries and keys, which marks positions.
      distances: if given, its queries and keys are part of the scores.
      way: the name of a `bertjax.models.attention.choice.Way`.
      remat: whether the backward pass computes the scores again. Kernels always do.
    """
    if way == KERNEL and isinstance(qkv, jax.Array):
        from bertjax.models.attention.kernel.attend import kernel_self_attention

        return kernel_self_attention(
            qkv, mask, pattern, rotation=rotation, distances=distances, drop=drop
        )

    def attend(
        qkv: Qkv, mask: Mask, rotation: Rotation | None, distances: Distances | None
    ) -> jax.Array:
        if distances is not None:
            parts, bias = with_bias(qkv, distances)
            return _OF_APART[way](*parts, mask, pattern, bias=bias, drop=drop)
        if isinstance(qkv, jax.Array):
            qkv = qkv if rotation is None else rotated(qkv, rotation)
            return _OF_JOINED[way](qkv, mask, pattern, drop=drop)
        query, key, value = qkv
        if rotation is not None:
            query, key = rotated(query, rotation.of_one), rotated(key, rotation.of_one)
        if way == KERNEL:
            from bertjax.models.attention.gpu_kernel import gpu_self_attention

            return gpu_self_attention(query, key, value, mask, pattern, drop=drop)
        return _OF_APART[way](query, key, value, mask, pattern, drop=drop)

    recomputes = way in (FLASH, CUDNN, KERNEL)
    attend = jax.checkpoint(attend) if remat and not recomputes else attend
    return attend(qkv, mask, rotation, distances)


def is_split(way: str) -> bool:
    """Whether query, key and value stay apart: a GPU would join them and cut them out again."""
    return platform() == "gpu" and way != BLOCKS


def joined(qkv: Qkv) -> jax.Array:
    """[B, S, 3, N, H]; a head of keys and values is repeated for all heads that read it."""
    if isinstance(qkv, jax.Array):
        return qkv
    query, *others = qkv
    key, value = (jnp.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in others)
    return jnp.stack([query, key, value], axis=2)
