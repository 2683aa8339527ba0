"""Attention within a window, by blocks of the sequence: its cost grows with S, not with S * S."""

import functools

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.einsum import Residuals, backward, forward, heads_first, swap


def block_length(window: int) -> int:
    """The queries of a block. They see as many keys as two blocks have, from `window` before it."""
    return 2 * window


def local_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    """`bertjax.models.attention.contract`, with a window w and a mask of keys.

    The queries are cut into k blocks of s = 2 w, and each block is multiplied with the t = 4 w keys
    around it. So all devices and platforms compute it with plain products.
    """
    assert pattern.window is not None
    return _attend(qkv, _visible(mask, pattern, pattern.window), drop, pattern.window)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(qkv: jax.Array, mask: jax.Array, drop: DropoutSpec | None, window: int) -> jax.Array:
    return _forward(qkv, mask, drop, window)[0]


def _forward(
    qkv: jax.Array, mask: jax.Array, drop: DropoutSpec | None, window: int
) -> tuple[jax.Array, tuple[jax.Array, DropoutSpec | None, Residuals]]:
    context, residuals = forward(tuple, _blocks(qkv, window), mask[:, None], drop)
    batch, length, _, heads, width = qkv.shape
    context = context.reshape(batch, heads, -1, width)[:, :, :length]
    return swap(context), (qkv, drop, residuals)


def _backward(
    window: int, residuals: tuple[jax.Array, DropoutSpec | None, Residuals], gradient: jax.Array
) -> tuple[jax.Array, None, None]:
    qkv, drop, of_forward = residuals
    blocks, gradient_of_blocks = jax.vjp(functools.partial(_blocks, window=window), qkv)
    gradient = _cut(swap(gradient), 0, block_length(window))
    *gradients, _ = backward(*blocks, of_forward, gradient, drop)
    return *gradient_of_blocks(tuple(gradients)), None, None


_attend.defvjp(_forward, _backward)


def _blocks(qkv: jax.Array, window: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Query / sqrt(H) [B, N, k, s, H], and the key and the value around it [B, N, k, t, H]."""
    query, key, value = heads_first(qkv)
    return (
        _cut(query, 0, block_length(window)),
        _visible_keys(key, window),
        _visible_keys(value, window),
    )


def _cut(x: jax.Array, before: int, block: int, extra: int = 0) -> jax.Array:
    """[..., S, H] -> [..., k + extra, s, H], with `before` zeros before it, and zeros after."""
    length = x.shape[-2]
    count = -(-length // block) + extra
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(before, count * block - before - length), (0, 0)])
    return x.reshape(*x.shape[:-2], count, block, x.shape[-1])


def _visible_keys(x: jax.Array, window: int) -> jax.Array:
    """The positions that the queries of each block may see: [..., S, H] -> [..., k, t, H]."""
    shifted = _cut(x, window, block_length(window), extra=1)
    return jnp.concatenate([shifted[..., :-1, :, :], shifted[..., 1:, :, :]], -2)


def _visible(mask: Mask, pattern: AttentionPattern, window: int) -> jax.Array:
    """Bool [B, k, s or 1, t]: True where query s of a block sees key t around it."""
    block = block_length(window)

    def around(x: jax.Array) -> jax.Array:  # [B, S] -> [B, k, 1, t]
        return _visible_keys(x[..., None], window)[..., 0][:, :, None]

    seen = around(mask.keys.astype(bool))
    distance = jnp.arange(2 * block) - window - jnp.arange(block)[:, None]  # [s, t]
    seen = seen & (jnp.abs(distance) <= window)
    if pattern.causal:
        seen = seen & (distance <= 0)
    if mask.segment_ids is not None:
        query_segments = _cut(mask.segment_ids[..., None], 0, block)  # [B, k, s, 1]
        seen = seen & (query_segments == around(mask.segment_ids))
    return seen
