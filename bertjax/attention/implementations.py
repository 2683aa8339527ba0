"""Every implementation of attention, by its name in `config.model.attention`."""

from functools import partial

import jax

from bertjax.attention.contract import Implementation, Keys, Pattern
from bertjax.attention.einsum import einsum_attention
from bertjax.attention.fused import fused_attention
from bertjax.attention.local import block_length, local_attention

KERNEL = "kernel"
IMPLEMENTATIONS = {
    "einsum": Implementation(einsum_attention, dropout=True),
    "fused": Implementation(fused_attention, dropout=False),
    # On TPUs the kernels, for the shapes that they serve; here is what it is elsewhere.
    KERNEL: Implementation(einsum_attention, dropout=True),
}


def attention(name: str, qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """Attention by the named implementation, or by blocks where a window makes that cheaper.

    The other arguments and the result are those of `bertjax.attention.contract`.
    """
    how = dict(pattern=pattern, rate=rate, seed=seed)
    by_blocks = _by_blocks(qkv.shape[1], pattern)
    attend = partial(local_attention if by_blocks else IMPLEMENTATIONS[name].attend, **how)
    _, length, _, *heads = qkv.shape
    if by_kernel(name, length, *heads, qkv.dtype, pattern, rate):
        from bertjax.attention.kernel import kernel_attention

        on_tpu = partial(kernel_attention, **how)
        return jax.lax.platform_dependent(qkv, keys, tpu=on_tpu, default=attend)
    return attend(qkv, keys)


def by_kernel(
    name: str, length: int, heads: int, width: int, dtype, pattern: Pattern, rate: float
) -> bool:
    """Whether `attention` is computed by kernels on TPUs: for S, N, H, and the dtype of qkv."""
    # In local attention by blocks, dropout has other bits than in kernels.
    if name != KERNEL or not isinstance(length, int) or (rate and _by_blocks(length, pattern)):
        return False
    from bertjax.attention.kernel import serves

    return serves(length, heads, width, dtype)


def computed_by(spec, length: int, platform: str) -> str:
    """The name of what computes an encoder's global attention on a platform such as "tpu"."""
    if spec.attention != KERNEL:
        return spec.attention
    heads = spec.num_attention_heads, spec.head_width
    rate = spec.attention_probs_dropout_prob
    on_tpu = by_kernel(KERNEL, length, *heads, spec.compute_dtype, Pattern(), rate)
    return KERNEL if platform == "tpu" and on_tpu else "einsum"


def _by_blocks(length: int, pattern: Pattern) -> bool:
    """Whether local attention by blocks is cheaper; a program for any length has no blocks."""
    window = pattern.window
    return window is not None and isinstance(length, int) and length > 2 * block_length(window)
