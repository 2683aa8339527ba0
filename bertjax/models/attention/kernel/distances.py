"""Scores by distance in the kernels of attention: disentangled attention (`attention.disentangled`).

`vectors` [2, 2 T, 128] are the keys of the distances T, ..., 1 - T, and the queries of the distances
-T, ..., T - 1. The products of 128 rows with the vectors that some of them need become scores by a
roll: row r moves r places to the right. The other way, a roll would have to move row r to the left,
which the chip cannot; so the rows come in reverse, by a product with a matrix.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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


class Gradients(NamedTuple):
    """Arrays to which `add_gradients` adds.

    Attributes:
      vectors: float32 [2, columns, 2 T].
      of_sides: of queries, float32 [R, 128], and of keys, float32 [T, 128]; 128 rows each come in
        reverse.
    """

    vectors: Ref
    of_sides: tuple[Ref, Ref]


def add_gradients(
    d_scores: Sequence[jax.Array],
    rows: tuple[jax.Array, jax.Array],
    vectors: Ref,
    into: Gradients,
    places: tuple[Index, Index],
    distance: Index,
    group: Index,
    form: Form,
) -> None:
    """Adds a block's gradients of the vectors, and of queries and keys by them.

    Args:
      d_scores: of each head, [K, C].
      rows: of the queries and keys, `reversed_columns`.
      places: the first of the block's queries and keys in `into`.
      distance: of the first query from the first key.
    """
    dtype, width = vectors.dtype, form.width
    firsts = (pl.multiple_of(group * LANES + h * width, width) for h in range(form.heads))
    lanes = [pl.ds(first, width) for first in firsts]
    reverse, nothing = _reverse(dtype), jnp.zeros((LANES, LANES), dtype)
    for side, signed in ((OF_QUERIES, -distance), (OF_KEYS, distance)):
        for first in range(0, rows[side].shape[1], LANES):
            at = slice(first, first + LANES)
            columns = form.queries if side == OF_KEYS else form.keys
            span = _span(vectors.at[side], signed, first, columns + LANES)
            d_rows = jnp.zeros((LANES, LANES), jnp.float32)
            by = vectors[side, span]
            for h, of_head in enumerate(d_scores):
                part = (of_head[at], (1, 0)) if side == OF_KEYS else (of_head[:, at], (1, 1))
                block = jnp.concatenate([dot(reverse, *part).astype(dtype), nothing], 1)
                block = pltpu.roll(block, 1, 1, stride=1, stride_axis=0)
                of_rows = rows[side][form.of_head(h), at]
                into.vectors[side, lanes[h], span] += dot(of_rows, block, (1, 0))
                d_rows += each_head(dot(block, by, (1, 0)), form)[h]
            into.of_sides[side][pl.ds(places[side] + first, LANES)] += d_rows


def reversed_columns(x: jax.Array) -> jax.Array:
    """The transpose of [n, 128]; 128 columns each come in reverse."""
    return _by_parts(lambda part: dot(part, _reverse(x.dtype), (0, 0)).astype(x.dtype), x, 1)


def reversed_rows(x: jax.Array) -> jax.Array:
    """[n, 128]; 128 rows each come in reverse."""
    return _by_parts(lambda part: dot(_reverse(x.dtype), part, (1, 0)), x, 0)


def _by_parts(function: Callable[[jax.Array], jax.Array], x: jax.Array, axis: int) -> jax.Array:
    parts = range(0, len(x), LANES)
    return jnp.concatenate([function(x[first : first + LANES]) for first in parts], axis)


def _scores(rows: jax.Array, vectors: Ref, distance: Index, columns: int) -> jax.Array:
    parts = []
    for first in range(0, len(rows), LANES):
        span = _span(vectors, distance, first, columns + LANES)
        products = dot(rows[first : first + LANES], vectors[span], (1, 1))
        parts.append(pltpu.roll(products, 0, 1, stride=1, stride_axis=0)[:, LANES:])
    return jnp.concatenate(parts, 0)


def _span(vectors: Ref, distance: Index, first_row: int, count: int) -> pl.Slice:
    """The vectors of 128 rows, from 128 places before the distance of the first row."""
    first = vectors.shape[0] // 2 + distance - first_row - LANES
    return pl.ds(pl.multiple_of(first, LANES), count)


def _reverse(dtype: jax.typing.DTypeLike) -> jax.Array:
    """[128, 128]: times it, rows or columns come in reverse."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (LANES, LANES), i) for i in (0, 1))
    return (row + column == LANES - 1).astype(jnp.float32).astype(dtype)
