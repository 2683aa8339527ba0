"""Attention within a window, by blocks of the sequence: its cost grows with S, not with S * S."""

import functools

import jax
import jax.numpy as jnp

from bertjax.attention.contract import Keys, Pattern, dropping
from bertjax.attention.einsum import backward, forward, heads_first, swap


def block_length(window: int) -> int:
    """The queries of a block. They see the keys of two blocks, which begin `window` before it."""
    return 2 * window


def local_attention(qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """See `bertjax.attention.contract`; the pattern has a window w.

    The queries are cut into blocks of s = 2 w, and each block is multiplied with the t = 4 w keys
    around it. So all devices and platforms compute it with plain products.
    """
    rate, seed = dropping(rate, seed)
    return _attend(qkv, _visible(keys, pattern), seed, pattern.window, rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attend(qkv, mask, seed, window, rate):
    return _forward(qkv, mask, seed, window, rate)[0]


def _forward(qkv, mask, seed, window, rate):
    context, residuals = forward(tuple, _blocks(qkv, window), mask[:, None], seed, rate)
    batch, length, _, heads, width = qkv.shape
    context = context.reshape(batch, heads, -1, width)[:, :, :length]
    return swap(context), (qkv, residuals)


def _backward(window, rate, residuals, gradient):
    qkv, residuals = residuals
    blocks, gradient_of_blocks = jax.vjp(functools.partial(_blocks, window=window), qkv)
    gradient = _cut(swap(gradient), 0, block_length(window))
    gradients = backward(*blocks, residuals, gradient, rate)
    return *gradient_of_blocks(gradients), None, None


_attend.defvjp(_forward, _backward)


def _blocks(qkv: jax.Array, window: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Query / sqrt(H) [B, N, K, s, H], and the key and the value around it [B, N, K, t, H]."""
    query, key, value = heads_first(qkv)
    return _cut(query, 0, block_length(window)), _around(key, window), _around(value, window)


def _cut(x: jax.Array, before: int, block: int, more: int = 0) -> jax.Array:
    """[..., S, H] -> [..., K + more, s, H], with `before` zeros before it, and zeros behind."""
    length = x.shape[-2]
    count = -(-length // block) + more
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(before, count * block - before - length), (0, 0)])
    return x.reshape(*x.shape[:-2], count, block, x.shape[-1])


def _around(x: jax.Array, window: int) -> jax.Array:
    """The positions that the queries of each block may see: [..., S, H] -> [..., K, t, H]."""
    shifted = _cut(x, window, block_length(window), more=1)
    return jnp.concatenate([shifted[..., :-1, :, :], shifted[..., 1:, :, :]], -2)


def _visible(keys: Keys, pattern: Pattern) -> jax.Array:
    """Bool [B, K, s or 1, t]: True where query s of a block sees key t around it."""
    window, block = pattern.window, block_length(pattern.window)

    def around(x):  # [B, S] -> [B, K, 1, t]
        return _around(x[..., None], window)[..., 0][:, :, None]

    mask = around(keys.tokens.astype(bool))
    distance = jnp.arange(2 * block) - window - jnp.arange(block)[:, None]  # [s, t]
    mask = mask & (jnp.abs(distance) <= window)
    if pattern.causal:
        mask = mask & (distance <= 0)
    if keys.documents is not None:
        own = _cut(keys.documents[..., None], 0, block)  # [B, K, s, 1]
        mask = mask & (own == around(keys.documents))
    return mask
