"""The backward kernel of attention."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.kernel import distances
from bertjax.models.attention.kernel.blocks import (
    LOG2E,
    LOW,
    UNSEEN,
    Queries,
    as_columns,
    block_of_queries,
    dot,
    each_head,
    keep_masks,
    over_keys,
    over_seen_keys,
    rotated,
    scores,
    visible,
    when,
)
from bertjax.models.attention.kernel.call import (
    KernelInputs,
    in_specs,
    rows,
    scratch,
    settings,
    sums,
)
from bertjax.models.attention.kernel.form import LANES, Form, Index, Ref


class _Block(NamedTuple):
    """A block of queries, and what the forward pass and the loss say of them."""

    queries: Queries
    query_t: jax.Array  # of all heads, [128, C]
    gradients: list[jax.Array]  # of each head's contexts, [C, 128]
    gradient_t: jax.Array  # of all heads, [128, C]
    means: list[jax.Array]  # of each head, the mean of the gradients of the weights, [1, C]
    logs: list[jax.Array]  # of each head, the logarithms of the sums, [1, C]


def _kernel(
    bits: Ref,
    first: Ref,
    bounds: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    codes: Ref,
    *refs: Ref,
    form: Form,
    columns_of: tuple[int, int, int],
) -> None:
    table, *others = refs if form.rotary else (None, *refs)
    vectors, *others = others if form.by_distance else (None, *others)
    logsum, out, d_out, *results = others
    *results, prepared, turned, d_k, d_v, d_rows, d_keys, d_values, sent = results
    d_vectors = results.pop() if form.by_distance else None
    d_q, d_kv = results[0], results[-1]
    row, group, step = (pl.program_id(i) for i in range(3))
    first_head, first_query = first[0] + group * form.heads, first[1]
    scale = form.scale

    def copy(i: int) -> Any:
        """Copies the gradient of queries, keys or values into its columns."""
        step_rows = pl.ds(pl.multiple_of(step * form.step, form.step), form.step)
        target = step_rows if i == 0 else slice(None)
        lanes = pl.ds((columns_of[i] + group) * LANES, LANES)
        into = (d_kv if i else d_q).at[row, target, lanes]
        return pltpu.make_async_copy((d_rows, d_keys, d_values)[i], into, sent.at[i])

    def prepare(at: pl.Slice) -> None:
        keys = k[0, at]
        if table is not None:
            keys = rotated(keys, table[at], form)
        turned[at] = keys
        if form.unaligned:
            prepared[at] = as_columns(codes[0, :1, at])
        else:
            prepared[:, at] = (keys * jnp.asarray(scale, keys.dtype)).T
        d_k[at] = d_v[at] = jnp.zeros((form.chunk, LANES), jnp.float32)

    over_keys(form, step == 0, prepare)
    if d_vectors is not None:

        @pl.when(row + group + step == 0)
        def _() -> None:
            d_vectors[...] = jnp.zeros(d_vectors.shape, jnp.float32)

    def block(index: int) -> _Block:
        queries = block_of_queries(index, q, codes, table, first_query, form)
        query_rows = pl.ds(index * form.queries, form.queries)
        gradient = d_out[0, query_rows].astype(jnp.float32)
        products = (gradient * out[0, query_rows].astype(jnp.float32)).T  # [128, C]
        gradient /= 1 - form.dropout.rate
        logs = [logsum[0, 0, h : h + 1, query_rows] for h in range(form.heads)]
        return _Block(
            queries,
            queries.all_heads.astype(jnp.float32).T.astype(q.dtype),
            each_head(gradient.astype(q.dtype), form),
            gradient.T.astype(q.dtype),
            [products[form.of_head(h)].sum(0, keepdims=True) for h in range(form.heads)],
            # A query that sees nothing has no gradient.
            [jnp.where(log > UNSEEN, log, -LOW) for log in logs],
        )

    def scored(block: _Block, first_key: Index) -> Iterator[tuple[jax.Array, jax.Array]]:
        """Yields the scores [K, C] of a head, and the gradients of its weights."""
        key_rows = pl.ds(first_key, form.keys)
        seen = visible(codes, prepared, first_key, block.queries, form)
        keys = turned[key_rows]
        biases = distances.biases(keys, block.queries, vectors, first_key, form)
        for query, gradient, bias in zip(
            block.queries.of_heads, block.gradients, biases, strict=True
        ):
            products = scores(keys, query, seen, form, bias)
            yield products, dot(v[0, key_rows], gradient, (1, 1))

    def gradients(
        block: _Block,
        first_key: Index,
        of_heads: Iterable[tuple[jax.Array, jax.Array]],
        before: list[jax.Array] | None,
    ) -> list[jax.Array]:
        key_rows = pl.ds(first_key, form.keys)
        if form.unaligned:
            scaled = (turned[key_rows] * jnp.asarray(scale, q.dtype)).T
        else:
            scaled = prepared[:, key_rows]
        keeps = keep_masks(bits[row], first_head, first_key, block.queries, form)
        of_queries, of_keys, of_values, all_d_scores = [], [], [], []
        for h, (of_scores, d_weights) in enumerate(of_heads):
            weights = dropped = jnp.exp2(of_scores - block.logs[h])
            if form.dropout.rate:
                keep = next(keeps)
                dropped = jnp.where(keep, weights, 0.0)
                d_weights = jnp.where(keep, d_weights, 0.0)
            d_scores = (weights * (d_weights - block.means[h])).astype(q.dtype)
            all_d_scores.append(d_scores)
            lanes = form.of_head(h)
            of_values.append(dot(block.gradient_t[lanes], dropped.astype(q.dtype), (1, 1)))
            of_keys.append(dot(block.query_t[lanes], d_scores, (1, 1)))
            d_query = dot(scaled[lanes], d_scores, (1, 0))  # [H, C]
            of_queries.append(d_query if before is None else before[h] + d_query)
        if vectors is not None:
            arrays = all_d_scores, turned[key_rows], block.queries, vectors, d_vectors
            by_query, by_key = distances.gradients(*arrays, first_key, group, form)
            for h in range(form.heads):
                of_queries[h] += by_query[form.of_head(h)] * scale
                of_keys[h] += by_key[form.of_head(h)]
        d_k[key_rows] += jnp.concatenate(of_keys, 0).T
        d_v[key_rows] += jnp.concatenate(of_values, 0).T
        return of_queries

    blocks = [block(index) for index in range(form.step // form.queries)]
    if form.streamed:
        (whole,) = blocks

        def block_of_keys(first_key: jax.Array, before: list[jax.Array]) -> list[jax.Array]:
            return gradients(whole, first_key, scored(whole, first_key), before)

        nothing = [jnp.zeros((form.width, form.queries), jnp.float32)] * form.heads
        d_queries = [over_seen_keys(bounds, form, block_of_keys, nothing)]
    else:
        first_keys = [form.first_key(block.queries.place) for block in blocks]
        products: Iterable[Iterable[tuple[jax.Array, jax.Array]]]
        products = map(scored, blocks, first_keys)
        if form.unaligned:  # all scores come before the rest: the compiler interleaves small blocks
            products = [list(of_heads) for of_heads in products]
        each = zip(blocks, first_keys, products, strict=True)
        d_queries = [gradients(*arguments, None) for arguments in each]

    when(step > 0, copy(0).wait)
    for index, of_heads in enumerate(d_queries):
        d_query = jnp.concatenate(of_heads, 0).T.astype(q.dtype)
        if table is not None:
            place = blocks[index].queries.place
            d_query = rotated(d_query, table[pl.ds(place, form.queries)], form, back=True)
        d_rows[pl.ds(index * form.queries, form.queries)] = d_query
    copy(0).start()

    def finish(at: pl.Slice) -> None:
        keys = d_k[at].astype(q.dtype)
        if table is not None:  # the queries were multiplied by LOG2E
            keys = rotated(keys, table[at], form, 1 / LOG2E, back=True)
        d_keys[at] = keys
        d_values[at] = d_v[at].astype(q.dtype)

    # While this group's keys and values are copied, the next one is computed.
    last, last_group = step == pl.num_programs(2) - 1, group == pl.num_programs(1) - 1
    when(last & (group > 0), copy(1).wait, copy(2).wait)
    over_keys(form, last, finish)
    when(last, copy(1).start, copy(2).start, copy(0).wait)
    when(last & last_group, copy(1).wait, copy(2).wait)


def backward(
    inputs: KernelInputs,
    form: Form,
    groups: int,
    out: jax.Array,
    logsum: jax.Array,
    d_out: jax.Array,
    interpret: Any,
) -> Sequence[jax.Array]:
    """The gradients of `inputs.arrays`, and of `inputs.vectors` if there are any."""
    batch, queries, _ = inputs.q.shape
    dtype = inputs.q.dtype
    of_keys = (form.length, LANES)
    like = jax.ShapeDtypeStruct
    if len(inputs.arrays) == 1:
        shapes = [like(inputs.q.shape, dtype)]
        columns_of = (0, groups, 2 * groups)
    else:
        shapes = [like((batch, queries, groups * LANES), dtype), like(inputs.kv.shape, dtype)]
        columns_of = (0, 0, groups)
    out_specs = [pl.BlockSpec(memory_space=pl.ANY)] * len(shapes)
    if form.by_distance:  # all rows add to them
        of_vectors = 2, groups * LANES, 2 * form.length
        shapes.append(like(of_vectors, jnp.float32))
        out_specs.append(pl.BlockSpec(of_vectors, lambda *_: (0, 0, 0)))
    return pl.pallas_call(
        functools.partial(_kernel, form=form, columns_of=columns_of),
        name="attention_backward",
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(batch, groups, queries // form.step),
            in_specs=[*in_specs(inputs, form, groups), sums(form), rows(form), rows(form)],
            out_specs=out_specs,
            scratch_shapes=[
                scratch(form, dtype),
                pltpu.VMEM(of_keys, dtype),
                pltpu.VMEM(of_keys, jnp.float32),
                pltpu.VMEM(of_keys, jnp.float32),
                pltpu.VMEM((form.step, LANES), dtype),
                pltpu.VMEM(of_keys, dtype),
                pltpu.VMEM(of_keys, dtype),
                pltpu.SemaphoreType.DMA((3,)),
            ],
        ),
        out_shape=shapes,
        **settings(form, interpret, apart=not form.by_distance),
    )(*inputs.scalars(form), *inputs.in_blocks(), logsum, out, d_out)
