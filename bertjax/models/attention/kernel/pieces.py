"""The keys that a device's piece of the sequences sees, where devices split the length."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern
from bertjax.models.attention.kernel.form import LANES


class Keys(NamedTuple):
    """The keys for a device's queries; `codes` and `table` are as in `call.KernelInputs`."""

    kv: jax.Array  # [B, T, 2, N, H]
    codes: jax.Array
    table: jax.Array | None
    first_query: jax.Array | int  # its position among the keys


def keys_of_piece(
    qkv: jax.Array,
    codes: jax.Array,
    table: jax.Array | None,
    pattern: AttentionPattern,
    axis: str,
    *,
    numbered: bool,
) -> Keys:
    """The keys of all devices; with a window, those of the neighbours that it reaches.

    `codes` and `table` are of all positions. Dropout needs keys that are `numbered` from the first
    of the sequence.
    """
    kv, length = qkv[:, :, 1:], qkv.shape[1]
    first, count = jax.lax.axis_index(axis) * length, jax.lax.axis_size(axis)
    halo = 0 if pattern.window is None else -(-pattern.window // LANES) * LANES
    if numbered or not 0 < halo <= length:
        kv = jax.lax.all_gather(kv, axis, axis=1, tiled=True)
        return Keys(kv, codes, table, first)
    # A device without a neighbour gets zeros.
    before = jax.lax.ppermute(kv[:, -halo:], axis, [(i, i + 1) for i in range(count - 1)])
    after = jax.lax.ppermute(kv[:, :halo], axis, [(i + 1, i) for i in range(count - 1)])

    def around(x: jax.Array, dimension: int, outside: int) -> jax.Array:
        """The device's slice of an array of all positions."""
        sides = [(halo, halo) if i == dimension else (0, 0) for i in range(x.ndim)]
        x = jnp.pad(x, sides, constant_values=outside)
        return jax.lax.dynamic_slice_in_dim(x, first, length + 2 * halo, dimension)

    return Keys(
        jnp.concatenate([before, kv, after], 1),
        around(codes, 2, -1),
        None if table is None else around(table, 0, 0),
        halo,
    )
