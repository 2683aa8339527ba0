"""Attention within a window, by blocks of the sequence: its cost grows with S, not with S * S."""

import jax
import jax.numpy as jnp

from bertjax.attention.contract import Keys, Pattern
from bertjax.layers.dropout import kept


def block_length(window: int) -> int:
    """The queries of a block. They see the keys of two blocks, which begin `window` before it."""
    return 2 * window


def local_attention(qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """See `bertjax.attention.contract`; the pattern has a window w.

    The queries are cut into blocks of 2 w, and each block is multiplied with the 4 w keys around
    it. So all devices and platforms compute it with plain products.
    """
    batch, length, _, heads, width = qkv.shape
    block = block_length(pattern.window)
    count = -(-length // block)
    query = _blocks(qkv[:, :, 0], 0, count, block) * width**-0.5  # [B, K, s, N, H]
    around = _around(qkv[:, :, 1:], pattern.window, count, block)  # [B, K, t, 2, N, H]
    scores = jnp.einsum(
        "bksnh,bktnh->bknst", query, around[:, :, :, 0], preferred_element_type=jnp.float32
    )
    mask = _visible(keys, pattern, count, block)  # [B, K, s or 1, t]
    scores = jnp.where(mask[:, :, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores).astype(qkv.dtype)
    if rate and seed is not None:
        weights = jnp.where(kept(seed, weights.shape, rate), weights / (1 - rate), 0)
    context = jnp.einsum("bknst,bktnh->bksnh", weights, around[:, :, :, 1])
    return context.reshape(batch, count * block, heads, width)[:, :length]


def _blocks(x: jax.Array, before: int, count: int, block: int) -> jax.Array:
    """[B, S, ...] -> [B, count, block, ...], with `before` zeros before it, and zeros behind."""
    behind = count * block - before - x.shape[1]
    x = jnp.pad(x, [(0, 0), (before, behind)] + [(0, 0)] * (x.ndim - 2))
    return x.reshape(x.shape[0], count, block, *x.shape[2:])


def _around(x: jax.Array, window: int, count: int, block: int) -> jax.Array:
    """The positions that the queries of each block may see: [B, S, ...] -> [B, K, 2 block, ...]."""
    shifted = _blocks(x, window, count + 1, block)
    return jnp.concatenate([shifted[:, :-1], shifted[:, 1:]], 2)


def _visible(keys: Keys, pattern: Pattern, count: int, block: int) -> jax.Array:
    """Bool [B, K, s or 1, t]: True where query s of a block sees key t around it."""
    mask = _around(keys.tokens.astype(bool), pattern.window, count, block)[:, :, None]
    distance = jnp.arange(2 * block) - pattern.window - jnp.arange(block)[:, None]  # [s, t]
    mask = mask & (jnp.abs(distance) <= pattern.window)
    if pattern.causal:
        mask = mask & (distance <= 0)
    if keys.documents is not None:
        own = _blocks(keys.documents, 0, count, block)[..., None]
        mask = mask & (own == _around(keys.documents, pattern.window, count, block)[:, :, None])
    return mask
