"""The forward kernel of attention."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.kernel import distances
from bertjax.models.attention.kernel.blocks import (
    LOW,
    Queries,
    as_columns,
    block_of_queries,
    dot,
    keep_masks,
    over_keys,
    over_seen_keys,
    rotated,
    scores,
    visible,
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


class _Softmax(NamedTuple):
    """The softmax of a head over the keys so far."""

    highest: jax.Array  # [1, C], the highest score, in units of log(2)
    total: jax.Array  # [1, C], the sum of the weights, 2 to the power of score - highest
    context: jax.Array  # [H, C], the sum of weights times values


_LEAST = 1e-30  # the sum of a query that sees no block of keys


def _kernel(
    bits: Ref, first: Ref, bounds: Ref, q: Ref, k: Ref, v: Ref, codes: Ref, *refs: Ref, form: Form
) -> None:
    table, *others = refs if form.rotary else (None, *refs)
    vectors, *others = others if form.by_distance else (None, *others)
    out, logsum, prepared, *turned = others
    row, group, step = (pl.program_id(i) for i in range(3))
    first_head, first_query = first[0] + group * form.heads, first[1]

    def prepare(at: pl.Slice) -> None:
        if form.unaligned:
            prepared[at] = as_columns(codes[0, :1, at])
        else:
            prepared[:, at] = v[0, at].T
        if table is not None:
            turned[0][at] = rotated(k[0, at], table[at], form)

    over_keys(form, step == 0, prepare)

    def scored(queries: Queries, first_key: Index) -> list[jax.Array]:
        key_rows = pl.ds(first_key, form.keys)
        keys = turned[0][key_rows] if table is not None else k[0, key_rows]
        seen = visible(codes, prepared, first_key, queries, form)
        biases = distances.biases(keys, queries, vectors, first_key, form)
        of_heads = zip(queries.of_heads, biases, strict=True)
        return [scores(keys, query, seen, form, bias) for query, bias in of_heads]

    def attended(
        queries: Queries,
        first_key: Index,
        products: list[jax.Array],
        before: list[_Softmax] | None,
    ) -> list[_Softmax]:
        key_rows = pl.ds(first_key, form.keys)
        values = v[0, key_rows].T if form.unaligned else prepared[:, key_rows]
        keeps = keep_masks(bits[row], first_head, first_key, queries, form)
        after = []
        for h in range(form.heads):
            highest = products[h].max(0, keepdims=True)
            if before is not None:
                highest = jnp.maximum(highest, before[h].highest)
            weights = jnp.exp2(products[h] - highest)
            total = weights.sum(0, keepdims=True)
            if form.dropout.rate:
                weights = jnp.where(next(keeps), weights, 0.0)
            context = dot(values[form.of_head(h)], weights.astype(values.dtype), (1, 0))  # [H, C]
            if before is not None:
                shrink = jnp.exp2(before[h].highest - highest)
                total += before[h].total * shrink
                context += before[h].context * shrink
            after.append(_Softmax(highest, total, context))
        return after

    of_blocks = [
        block_of_queries(index, q, codes, table, first_query, form)
        for index in range(form.step // form.queries)
    ]
    if form.streamed:
        (queries,) = of_blocks

        def block_of_keys(first_key: jax.Array, before: list[_Softmax]) -> list[_Softmax]:
            return attended(queries, first_key, scored(queries, first_key), before)

        shapes = ((1, form.queries), (1, form.queries), (form.width, form.queries))
        lowest, *zeros = (jnp.zeros(shape, jnp.float32) for shape in shapes)
        nothing = [_Softmax(lowest + LOW, *zeros)] * form.heads
        results = [over_seen_keys(bounds, form, block_of_keys, nothing)]
    else:
        # All scores come before the rest, so that the compiler interleaves the blocks.
        first_keys = [form.first_key(queries.place) for queries in of_blocks]
        products = list(map(scored, of_blocks, first_keys))
        results = [
            attended(*each, None) for each in zip(of_blocks, first_keys, products, strict=True)
        ]
    for index, of_heads in enumerate(results):
        query_rows = pl.ds(index * form.queries, form.queries)
        contexts = []
        for h, (highest, total, context) in enumerate(of_heads):
            total = jnp.maximum(total, _LEAST)
            contexts.append(context / (total * (1 - form.dropout.rate)))
            logsum[0, 0, h : h + 1, query_rows] = highest + jnp.log2(total)
        out[0, query_rows] = jnp.concatenate(contexts, 0).T.astype(out.dtype)


def forward(
    inputs: KernelInputs, form: Form, groups: int, interpret: Any
) -> tuple[jax.Array, jax.Array]:
    """The context [B, S, N * H], and the logarithm of each query's sum, [B, groups, G, S]."""
    batch, queries, _ = inputs.q.shape
    dtype = inputs.q.dtype
    of_keys = (form.length, LANES)
    return pl.pallas_call(
        functools.partial(_kernel, form=form),
        name="attention_forward",
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(batch, groups, queries // form.step),
            in_specs=in_specs(inputs, form, groups),
            out_specs=[rows(form), sums(form)],
            scratch_shapes=[
                scratch(form, dtype),
                *([pltpu.VMEM(of_keys, dtype)] if form.rotary else []),
            ],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((batch, queries, groups * LANES), dtype),
            jax.ShapeDtypeStruct((batch, groups, form.heads, queries), jnp.float32),
        ],
        **settings(form, interpret),
    )(*inputs.scalars(form), *inputs.in_blocks())
