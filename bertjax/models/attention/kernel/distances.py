"""Scores by distance in the kernels of attention, for `bertjax.models.attention.disentangled`.

`vectors` [2, 2 T, 128] are the keys of the distances T, ..., 1 - T, and the queries of the
distances -T, ..., T - 1. 128 rows are multiplied with all vectors that some of them need; then row
r is rolled r places to the right. The gradient goes the other way, but the chip rolls only to the
right: a product with a matrix reverses the rows first.
"""

from collections.abc import Iterator, Sequence

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
    d_scores: Sequence[jax.Array],
    keys: jax.Array,
    queries: Queries,
    vectors: Ref,
    d_vectors: Ref,
    first_key: Index,
    group: jax.Array,
    form: Form,
) -> list[jax.Array]:
    """The gradients of a block's queries and keys, [128, C] and [128, K]; adds to `d_vectors`.

    Args:
      d_scores: of each head, [K, C].
      d_vectors: float32 [2, columns, 2 T], of all groups.
    """
    distance = queries.place - first_key
    sides = (queries.all_heads, -distance, form.keys), (keys, distance, form.queries)
    firsts = [group * LANES + h * form.width for h in range(form.heads)]
    lanes = [pl.ds(pl.multiple_of(first, form.width), form.width) for first in firsts]
    nothing = jnp.zeros((LANES, LANES), keys.dtype)
    reverse = _reverse(keys.dtype)
    results = []
    for side, (rows, signed, columns) in enumerate(sides):
        parts = []
        for first in range(0, len(rows), LANES):
            at = slice(first, first + LANES)
            span = _span(vectors.at[side], signed, first, columns + LANES)
            reversed_rows = dot(rows[at], reverse, (0, 0)).astype(keys.dtype)  # as columns
            by, total = vectors[side, span], jnp.zeros((LANES, LANES), jnp.float32)
            for h, scores in enumerate(d_scores):
                part = (scores[at], (1, 0)) if side == OF_KEYS else (scores[:, at], (1, 1))
                block = jnp.concatenate([dot(reverse, *part).astype(keys.dtype), nothing], 1)
                block = pltpu.roll(block, 1, 1, stride=1, stride_axis=0)
                of_head = reversed_rows[form.of_head(h)]
                d_vectors[side, lanes[h], span] += dot(of_head, block, (1, 0))
                total += each_head(dot(block, by, (1, 0)), form)[h]
            parts.append(dot(total.astype(keys.dtype), reverse, (0, 0)))
        results.append(jnp.concatenate(parts, 1))
    return results


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
