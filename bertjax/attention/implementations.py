"""Every implementation of attention, by its name in `config.model.attention`."""

import jax

from bertjax.attention.contract import Implementation, Keys, Pattern
from bertjax.attention.einsum import einsum_attention
from bertjax.attention.fused import fused_attention
from bertjax.attention.local import block_length, local_attention

IMPLEMENTATIONS = {
    "einsum": Implementation(einsum_attention, dropout=True),
    "fused": Implementation(fused_attention, dropout=False),
}


def attention(name: str, qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """Attention by the named implementation, or by blocks where a window makes that cheaper.

    The other arguments and the result are those of `bertjax.attention.contract`.
    """
    length, window = qkv.shape[1], pattern.window
    known = isinstance(length, int)  # a program that is exported for any length has no blocks
    if window is not None and known and length > 2 * block_length(window):
        return local_attention(qkv, keys, pattern, rate=rate, seed=seed)
    return IMPLEMENTATIONS[name].attend(qkv, keys, pattern, rate=rate, seed=seed)
