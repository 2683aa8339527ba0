"""Scores by distance in the kernels of attention: disentangled attention (`attention.disentangled`).

`vectors` [2, 2 T, 128] are the keys of the distances T, ..., 1 - T, and the queries of the distances
-T, ..., T - 1. The products of 128 rows with the vectors that some of them need become scores by a
roll: row r moves r places to the right. The other way, a roll would have to move row r to the left,
which the chip cannot; so the rows come in reverse, by a product with a matrix.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.kernel.blocks import Queries, dot, each_head
from bertjax.models.attention.kernel.form import LANES, Form, Index, Ref

OF_QUERIES, OF_KEYS = 0, 1  # whose rows are multiplied with the vectors


def biases(
    keys: jax.Array, queries: Queries, vectors: Ref | None, first_key: Index, form: Form
) -> Iterator[jax.Array | None]:
    """Yields each head's scores by distance, [K, C]; None if distances have no vectors."""
    if vectors is None:
        yield from [None] * form.heads
        return
    distance = queries.place - first_key
    for key, query in zip(each_head(keys, form), queries.of_heads, strict=True):
        of_queries = _scores(query, vectors.at[OF_QUERIES], -distance, form.keys)
        yield _scores(key, vectors.at[OF_KEYS], distance, form.queries) + of_queries.T


def gradients(
    d_scores: jax.Array,
    rows: jax.Array,
    vectors: Ref,
    d_vectors: Ref,
    side: int,
    distance: Index,
    lanes: slice,
    first_lane: Index,
) -> jax.Array:
    """The gradient of a head's queries or keys, float32 [H, n]; adds to those of the vectors.

    Args:
      d_scores: [K, C].
      rows: the queries or keys, [H, n].
      d_vectors: float32 [2, columns, 2 T].
      first_lane: that of the head in `d_vectors`.
    """
    reverse = _reverse(d_scores.dtype)
    width, count = rows.shape
    parts = []
    for first in range(0, count, LANES):
        at = slice(first, first + LANES)
        part = (d_scores[at], (1, 0)) if side == OF_KEYS else (d_scores[:, at], (1, 1))
        block = dot(reverse, *part).astype(d_scores.dtype)  # [128, columns], its last row first
        block = jnp.concatenate([block, jnp.zeros((LANES, LANES), block.dtype)], 1)
        block = pltpu.roll(block, 1, 1, stride=1, stride_axis=0)
        span = _span(vectors.at[side], distance, first, block.shape[1])
        reversed_rows = dot(rows[:, at], reverse, (1, 0)).astype(rows.dtype)
        into = pl.ds(pl.multiple_of(first_lane, width), width)
        d_vectors[side, into, span] += dot(reversed_rows, block, (1, 0))
        d_rows = dot(block, vectors[side, span], (1, 0)).T[lanes]
        parts.append(dot(d_rows, _reverse(d_rows.dtype), (1, 0)))
    return jnp.concatenate(parts, 1)


def _scores(rows: jax.Array, vectors: Ref, distance: Index, columns: int) -> jax.Array:
    parts = []
    for first in range(0, len(rows), LANES):
        span = _span(vectors, distance, first, columns + LANES)
        products = dot(rows[first : first + LANES], vectors[span], (1, 1))
        parts.append(pltpu.roll(products, 0, 1, stride=1, stride_axis=0)[:, LANES:])
    return jnp.concatenate(parts, 0)


def _span(vectors: Ref, distance: Index, first_row: int, count: int) -> pl.Slice:
    """The vectors for 128 rows: the first is that of 128 places before the distance of the first row."""
    first = vectors.shape[0] // 2 + distance - first_row - LANES
    return pl.ds(pl.multiple_of(first, LANES), count)


def _reverse(dtype: jax.typing.DTypeLike) -> jax.Array:
    """[128, 128]: times it, rows or columns come in reverse."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (LANES, LANES), i) for i in (0, 1))
    return (row + column == LANES - 1).astype(jnp.float32).astype(dtype)
