"""The operations of both kernels of attention on blocks of queries and keys."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.kernel.form import LANES, Form, Index, Ref
from bertjax.models.layers.dropout import half_of, mix

T = TypeVar("T")

LOG2E = 1.4426950408889634  # scores are in units of log(2), because the chip computes powers of 2
LOW = -1e30  # the score of a key that a query does not see
UNSEEN = -1e29  # a query whose highest score is below this sees no key


def dot(a: jax.Array, b: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """The product over one axis of each, with float32 sums."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    dimensions = ((contract[:1], contract[1:]), ((), ()))
    return jax.lax.dot_general(
        a, b, dimensions, precision=precision, preferred_element_type=jnp.float32
    )


def each_head(x: jax.Array, form: Form) -> list[jax.Array]:
    """x [n, 128] for each head, with zeros in the lanes of the others."""
    if form.heads == 1:
        return [x]
    lane = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    head = jax.lax.div(lane, form.width)
    return [x * (head == h).astype(x.dtype) for h in range(form.heads)]


def over_keys(form: Form, now: jax.Array, body: Callable[[pl.Slice], None]) -> None:
    """If `now`, calls `body` for all keys, about as many at once as a step has queries."""
    size = form.chunk

    def of_round(index: jax.Array, _: int) -> int:
        body(pl.ds(pl.multiple_of(index * size, size), size))
        return 0

    if form.length == size:  # a sequence has one step
        body(pl.ds(0, size))
    else:
        # The rounds depend on data, so the compile report counts one, as of a mean step.
        jax.lax.fori_loop(0, jnp.where(now, form.length // size, 0), of_round, 0)


def when(condition: jax.Array, *actions: Callable[[], None]) -> None:
    """Calls the actions if the condition holds."""

    @pl.when(condition)
    def _() -> None:
        for action in actions:
            action()


def as_columns(row: jax.Array) -> jax.Array:
    """int [1, n] -> float32 [n, 128], whose lanes are equal."""
    # A row becomes a column by the transposition of a matrix of equal rows.
    return jnp.broadcast_to(row.astype(jnp.float32), (LANES, row.shape[1])).T


class Queries(NamedTuple):
    """A block of queries."""

    place: Index  # its first position
    all_heads: jax.Array  # [C, 128], times 1 / sqrt(H); if rotated, in units of log(2), too
    of_heads: list[jax.Array]  # with zeros in the lanes of the others
    codes: jax.Array  # int [1, C]


def block_of_queries(
    index: int, q: Ref, codes: Ref, table: Ref | None, first_query: Index, form: Form
) -> Queries:
    """Block `index` of the step's queries; `first_query` is the first position of the device."""
    x = q[0, pl.ds(index * form.queries, form.queries)]
    before = pl.program_id(2) * form.step + index * form.queries
    place = pl.multiple_of(first_query + before, LANES)
    query_rows, scale = pl.ds(place, form.queries), form.scale
    if table is None:
        x = x * jnp.asarray(scale, x.dtype)
    else:
        x = rotated(x, table[query_rows], form, scale * LOG2E)  # it is rounded once
    return Queries(place, x, each_head(x, form), codes[0, 1:, query_rows])


def over_seen_keys(
    bounds: Ref, form: Form, body: Callable[[jax.Array, list[T]], list[T]], start: list[T]
) -> list[T]:
    """Calls `body` with the first key of each block that is seen, and the result before."""
    low, high = (bounds[pl.program_id(0), pl.program_id(2), i] for i in range(2))

    def of_round(index: jax.Array, before: list[T]) -> list[T]:
        return body(pl.multiple_of(index * form.keys, form.keys), before)

    return jax.lax.fori_loop(low, high, of_round, start)


def scores(
    keys: jax.Array, queries: jax.Array, seen: jax.Array, form: Form, bias: jax.Array | None = None
) -> jax.Array:
    """The scores of a head, in units of log(2), float32 [K, C]; `seen` is of `visible`."""
    products = dot(keys, queries, (1, 1))
    products = products if bias is None else products + bias
    return jnp.where(seen, products if form.rotary else products * LOG2E, LOW)


def rotated(
    x: jax.Array, table: jax.Array, form: Form, scale: float = 1.0, *, back: bool = False
) -> jax.Array:
    """x [n, 128], turned by the angles of its positions (`layers.rotary`), or `back`.

    Args:
      table: float32 [n, 128], cosines in the first 64 lanes and sines in the others, of the H / 2
        frequencies again and again.
      scale: a factor of the result, which is rounded once.
    """
    first_half = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1) < LANES // 2
    swapped = pltpu.roll(table, LANES // 2, 1)
    cosine, sine = jnp.where(first_half, table, swapped), jnp.where(first_half, swapped, table)
    turned = dot(x, _quarter_turn(form, x.dtype), (1, 0))
    turned = -turned if back else turned
    result = x.astype(jnp.float32) * cosine + turned * sine
    return (result if scale == 1 else result * scale).astype(x.dtype)


def _quarter_turn(form: Form, dtype: jax.typing.DTypeLike) -> jax.Array:
    """[128, 128]: times it, the halves of each head, (first, second), are (-second, first)."""
    source, target = (jax.lax.broadcasted_iota(jnp.int32, (LANES, LANES), i) for i in (0, 1))
    half = form.width // 2
    of_first = jax.lax.rem(target, form.width) < half
    minus = of_first & (source == target + half)
    plus = jnp.logical_not(of_first) & (source == target - half)
    return (plus.astype(jnp.float32) - minus.astype(jnp.float32)).astype(dtype)


def visible(codes: Ref, prepared: Ref, first_key: Index, queries: Queries, form: Form) -> jax.Array:
    """Bool [K, C]: whether a query of a block sees a key: those with its own code."""
    key_rows = pl.ds(first_key, form.keys)
    columns = prepared[key_rows] if form.unaligned else as_columns(codes[0, :1, key_rows])
    of_keys = jnp.concatenate([columns] * (form.queries // LANES), 1)
    seen = of_keys == queries.codes.astype(jnp.float32)
    pattern = form.pattern
    if pattern.causal or pattern.window is not None:
        key, query = _places(jnp.int32, form)
        key += first_key - queries.place
        if pattern.causal:
            seen &= key <= query
        if pattern.window is not None:
            seen &= jnp.abs(key - query) <= pattern.window
    return seen


def keep_masks(
    bits: jax.Array, first_head: jax.Array, first_key: Index, queries: Queries, form: Form
) -> Iterator[jax.Array]:
    """Yields each head's `layers.dropout.keep_mask`, [K, C]; `bits` are the row's."""
    rule, (key, query) = form.dropout, _places(jnp.uint32, form)
    stride, threshold = jnp.uint32(rule.stride), round(rule.rate * 2**rule.bits)
    place = query * stride + key
    first = jnp.asarray(queries.place, jnp.uint32) * stride + jnp.asarray(first_key, jnp.uint32)

    def numbers(head: jax.Array) -> jax.Array:
        return mix(place + (bits + head.astype(jnp.uint32) * stride * stride + first))

    both = jnp.uint32(0)
    for index in range(form.heads):
        head = first_head + index
        if rule.bits == 32:
            yield numbers(head) >= jnp.uint32(threshold)
        elif not rule.paired:
            both = numbers(jax.lax.div(head, 2))
            yield half_of(both, jax.lax.rem(head, 2)) >= jnp.uint32(threshold)
        elif index % 2 == 0:
            both = numbers(jax.lax.div(head, 2))
            yield half_of(both, 0) >= jnp.uint32(threshold)
        else:
            yield both >= jnp.uint32(threshold << 16)  # of the upper half


def _places(dtype: jax.typing.DTypeLike, form: Form) -> list[jax.Array]:
    """The places of keys and queries within their blocks, [K, C]."""
    return [jax.lax.broadcasted_iota(dtype, (form.keys, form.queries), i) for i in range(2)]
