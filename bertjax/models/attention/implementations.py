"""Attention, and every implementation of it by its name in `config.model.attention`."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax

from bertjax.models.attention.contract import Drop, Mask, Pattern
from bertjax.models.attention.einsum import einsum_attention, einsum_self_attention
from bertjax.models.attention.fused import fused_attention, fused_self_attention
from bertjax.models.attention.local import block_length, local_self_attention
from bertjax.models.layers.rotary import Rotation, rotated


class AttentionSpec(Protocol):
    """The fields of an encoder's spec that attention reads."""

    @property
    def head_width(self) -> int:
        """H."""

    @property
    def compute_dtype(self) -> str:
        """The dtype of queries, keys and values."""

    @property
    def attention(self) -> str:
        """A key of `IMPLEMENTATIONS`."""

    @property
    def attention_probs_dropout_prob(self) -> float:
        """The probability of dropping an attention probability."""


class Implementation(NamedTuple):
    """A way to compute attention.

    Attributes:
      attend: (query, key, value, mask, pattern, bias=..., drop=...).
      attend_to_self: (qkv, mask, pattern, drop=...).
      dropout: whether it can drop attention probabilities.
    """

    attend: Callable[..., jax.Array]
    attend_to_self: Callable[..., jax.Array]
    dropout: bool


_EINSUM = Implementation(einsum_attention, einsum_self_attention, dropout=True)
KERNEL = "kernel"
IMPLEMENTATIONS = {
    "einsum": _EINSUM,
    "fused": Implementation(fused_attention, fused_self_attention, dropout=False),
    # Kernels for self-attention on TPUs, for the shapes that they serve; everything else is einsum.
    KERNEL: _EINSUM,
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
    drop: Drop | None = None,
    implementation: str = "einsum",
) -> jax.Array:
    """Attention of [B, S, N, H] queries to [B, T, K, H] keys and values: [B, S, N, H].

    The arguments are those of `bertjax.models.attention.contract`: `mask` is `Mask.keys`, and so
    on.
    """
    seen = Mask(mask, segment_ids, query_segment_ids)
    attend = IMPLEMENTATIONS[implementation].attend
    pattern = Pattern(causal, window)
    return attend(query, key, value, seen, pattern, bias=bias, drop=drop)


def self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: Pattern,
    rotation: Rotation | None = None,
    *,
    drop: Drop | None = None,
    implementation: str,
    by_kernel: bool,
    remat: bool = False,
) -> jax.Array:
    """Attention of the tokens of a sequence to each other: qkv [B, S, 3, N, H] -> [B, S, N, H].

    It is computed by blocks where a window makes that cheaper.

    Args:
      rotation: if given, queries and keys are rotated by it, which marks positions.
      by_kernel: the result of `by_kernel`.
      remat: whether the backward pass computes the scores again. Kernels always do.
    """
    by_blocks = _by_blocks(qkv.shape[1], pattern)
    of_rotated = IMPLEMENTATIONS[implementation].attend_to_self
    of_rotated = local_self_attention if by_blocks else of_rotated

    def attend(qkv: jax.Array, mask: Mask, rotation: Rotation | None) -> jax.Array:
        qkv = qkv if rotation is None else rotated(qkv, rotation)
        return of_rotated(qkv, mask, pattern, drop=drop)

    attend = jax.checkpoint(attend) if remat else attend
    if not by_kernel:
        return attend(qkv, mask, rotation)
    from bertjax.models.attention.kernel.attend import kernel_self_attention

    def on_tpu(qkv: jax.Array, mask: Mask, rotation: Rotation | None) -> jax.Array:
        return kernel_self_attention(qkv, mask, pattern, rotation=rotation, drop=drop)

    return jax.lax.platform_dependent(qkv, mask, rotation, tpu=on_tpu, default=attend)


def by_kernel(
    implementation: str,
    length: int,
    width: int,
    dtype: jax.typing.DTypeLike,
    pattern: Pattern,
    rate: float,
) -> bool:
    """Whether kernels compute self-attention on TPUs, for this S and H, and dtype of qkv."""
    # In local attention by blocks, dropout has other bits than in kernels.
    is_exported = not isinstance(length, int)
    if implementation != KERNEL or is_exported or (rate and _by_blocks(length, pattern)):
        return False
    from bertjax.models.attention.kernel.attend import serves

    return serves(length, width, dtype)


def computed_by(spec: AttentionSpec, length: int, platform: str) -> str:
    """The implementation that computes an encoder's global attention on a platform, as "tpu"."""
    if spec.attention != KERNEL:
        return spec.attention
    rate = spec.attention_probs_dropout_prob
    on_tpu = by_kernel(KERNEL, length, spec.head_width, spec.compute_dtype, Pattern(), rate)
    return KERNEL if platform == "tpu" and on_tpu else "einsum"


def _by_blocks(length: int, pattern: Pattern) -> bool:
    """Whether local attention by blocks is cheaper; a program for any length has no blocks."""
    window = pattern.window
    return window is not None and isinstance(length, int) and length > 2 * block_length(window)
