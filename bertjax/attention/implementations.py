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
    _, length, _, heads, width = qkv.shape
    known = isinstance(length, int)  # a program that is exported for any length has no blocks
    window = pattern.window
    by_blocks = window is not None and known and length > 2 * block_length(window)
    how = dict(pattern=pattern, rate=rate, seed=seed)
    attend = partial(local_attention if by_blocks else IMPLEMENTATIONS[name].attend, **how)
    # In local attention by blocks, dropout has other bits than in kernels.
    if name == KERNEL and known and not (by_blocks and rate):
        from bertjax.attention.kernel import kernel_attention, serves

        if serves(length, heads, width, qkv.dtype):
            by_kernel = partial(kernel_attention, **how)
            return jax.lax.platform_dependent(qkv, keys, tpu=by_kernel, default=attend)
    return attend(qkv, keys)
