"""Self-attention on GPUs by Pallas kernels of this project, which drop attention probabilities.

The kernels of cuDNN and FlashAttention cannot drop with the bits of
`bertjax.models.layers.dropout.keep_mask`; einsum can, and writes arrays [B, N, S, S]. Here they
stay in registers, by the scheme of FlashAttention-2 (arXiv 2307.08691): a program computes a block
of queries of one head, key block by key block with a running softmax, and only the blocks that it
sees: those of its documents, of the window, and not after a causal query. For the backward pass the
output and the logarithm of each query's sum are kept. One kernel makes the gradient of queries, and
another those of keys and values, so no two programs add to one number, and the results have the
same bits each time.

The hash of dropout is most of the work: integers, of which a GPU computes half as many as floats.

Triton lowers the kernels, for every GPU from Ampere on. JAX has deprecated this lowering since 0.11
for Mosaic GPU, where each generation needs a kernel of its own (products are `mma`, `wgmma` or
`tcgen05`). On a JAX that has removed it, `serves` says so.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

from bertjax.base import axes
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.remat import KERNEL_RESULTS
from bertjax.models.layers.dropout import mix, row_bits
from bertjax.models.layers.mesh_axes import mesh_axes

triton: Any
try:
    from jax.experimental.pallas import triton
except ImportError:
    triton = None

Ref = Any  # an array in the memory of a GPU, which a kernel reads or writes
Index = jax.Array | int

_LOG2E = 1.4426950408889634  # a GPU computes powers of 2
_APART = 2.0**33  # the distance of the codes of two documents; squared, it hides a key
_NO_KEY, _NO_QUERY = -_APART, -2 * _APART  # the codes of padding
_LOW = -1e15  # the highest score of a query that sees no key, above those of all hidden keys
_LEAST = 1e-30  # the sum of its weights


class _Blocks(NamedTuple):
    """The sizes of blocks of queries and keys, and Triton's settings."""

    queries: int
    keys: int
    warps: int
    stages: int


_FORWARD = _Blocks(128, 64, warps=4, stages=3)
_OF_QUERIES = _Blocks(64, 64, warps=4, stages=3)
_OF_KEYS = _Blocks(64, 64, warps=4, stages=3)


class _Form(NamedTuple):
    """What is known when the kernels are compiled."""

    length: int  # S
    scale: float  # 1 / sqrt(H)
    pattern: AttentionPattern
    rate: float  # 0: nothing is dropped
    bits: int
    interpret: bool  # JAX executes the kernels' operations, on any platform


class _Facts(NamedTuple):
    """What all kernels read besides queries, keys and values."""

    key_codes: jax.Array  # float32 [B, S], number of document * `_APART`; padding: `_NO_KEY`
    query_codes: jax.Array  # the same; padding: `_NO_QUERY`
    bits: jax.Array  # uint32 [B], `dropout.row_bits` of these rows
    before: jax.Array  # int32 [1], the number of the first of these heads


def serves(length: int, width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernels compute such self-attention, on a GPU of capability 8.0 or more."""
    whole = (mesh_axes((axes.LENGTH,)) or (None,))[0] is None  # no device has a piece of a sequence
    halves = jnp.dtype(dtype) in (jnp.bfloat16, jnp.float16)
    return triton is not None and whole and halves and width in (32, 64, 128)


def gpu_self_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
    interpret: bool = False,
) -> jax.Array:
    """`bertjax.models.attention.contract`, for shapes that `serves` takes, and a mask of keys.

    With `interpret`, JAX executes the kernels' operations, on any platform.
    """
    rows, length, heads, width = query.shape
    key, value = (jnp.repeat(x, heads // x.shape[2], axis=2) for x in (key, value))
    seed, rate, bits = (drop.seed, drop.rate, drop.bits) if drop else (jnp.uint32(0), 0.0, 32)
    form = _Form(length, width**-0.5, pattern, rate, bits, interpret)
    numbers = jnp.float32(0) if mask.segment_ids is None else mask.segment_ids.astype(jnp.float32)
    codes = [
        jnp.where(mask.keys.astype(bool), numbers * _APART, padding)
        for padding in (_NO_KEY, _NO_QUERY)
    ]
    arrays = query, key, value, *codes, row_bits(seed, rows)

    def of_device(heads: str | None, *arrays: jax.Array) -> jax.Array:
        query, key, value, key_codes, query_codes, bits = arrays
        before = 0 if heads is None else jax.lax.axis_index(heads) * query.shape[2]
        facts = _Facts(key_codes, query_codes, bits, jnp.full((1,), before, jnp.int32))
        return _attend(query, key, value, facts, form)

    split = mesh_axes((axes.BATCH, axes.ACTIVATION_HEADS))
    if split is None:
        return of_device(None, *arrays)
    of_rows, of_heads = split
    by_rows, by_all = PartitionSpec(of_rows), PartitionSpec(of_rows, None, of_heads)
    return jax.shard_map(
        functools.partial(of_device, of_heads),
        in_specs=(*[by_all] * 3, *[by_rows] * 3),
        out_specs=by_all,
        check_vma=False,
    )(*arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attend(
    query: jax.Array, key: jax.Array, value: jax.Array, facts: _Facts, form: _Form
) -> jax.Array:
    return _forward(query, key, value, facts, form)[0]


def _forward(
    query: jax.Array, key: jax.Array, value: jax.Array, facts: _Facts, form: _Form
) -> tuple[jax.Array, Any]:
    rows, length, heads, _ = query.shape
    of_each_query = jax.ShapeDtypeStruct((rows, heads, length), jnp.float32)
    results = _call(
        _forward_kernel,
        "attention_forward",
        _FORWARD,
        form,
        facts,
        arrays=(query, key, value),
        results=(query, of_each_query),
    )
    out, logsum = (checkpoint_name(x, KERNEL_RESULTS) for x in results)
    return out, (query, key, value, facts, out, logsum)


def _backward(form: _Form, residuals: Any, gradient: jax.Array) -> tuple[Any, ...]:
    query, key, value, facts, out, logsum = residuals
    d_query, means = _call(
        _backward_of_queries,
        "attention_backward_of_queries",
        _OF_QUERIES,
        form,
        facts,
        arrays=(query, key, value, gradient, logsum, out),
        results=(query, logsum),
    )
    d_key, d_value = _call(
        _backward_of_keys,
        "attention_backward_of_keys",
        _OF_KEYS,
        form,
        facts,
        arrays=(query, key, value, gradient, logsum, means),
        results=(key, value),
        by_keys=True,
    )
    return d_query, d_key, d_value, _Facts(*[None] * 4)  # type: ignore[arg-type]


_attend.defvjp(_forward, _backward)


def _call(
    kernel: Callable[..., None],
    name: str,
    blocks: _Blocks,
    form: _Form,
    facts: _Facts,
    *,
    arrays: Sequence[jax.Array],
    results: Sequence[jax.Array | jax.ShapeDtypeStruct],
    by_keys: bool = False,
) -> Sequence[jax.Array]:
    """Calls a kernel with a program for each block of queries, or of keys, of each head."""
    rows, _, heads, width = arrays[0].shape
    if width > 64:  # it takes twice the registers and the memory of a block
        blocks = blocks._replace(warps=max(4, blocks.queries // 16), stages=2)
    bounds = _bounds(facts, form, blocks, by_keys=by_keys)

    def of_head(x: jax.Array | jax.ShapeDtypeStruct) -> pl.BlockSpec:
        if x.ndim == 3:
            return pl.BlockSpec((None, None, form.length), lambda i, n, b: (b, n, 0))
        return pl.BlockSpec((None, form.length, None, x.shape[3]), lambda i, n, b: (b, 0, n, 0))

    return pl.pallas_call(
        functools.partial(kernel, form=form, blocks=blocks),
        name=name,
        grid=(bounds.shape[1], heads, rows),
        in_specs=[
            pl.BlockSpec((None, None, 2), lambda i, n, b: (b, i, 0)),
            *[pl.BlockSpec((None, form.length), lambda i, n, b: (b, 0))] * 2,
            pl.BlockSpec((1,), lambda i, n, b: (b,)),
            pl.BlockSpec((1,), lambda i, n, b: (0,)),
            *map(of_head, arrays),
        ],
        out_specs=[of_head(x) for x in results],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=blocks.stages),
        interpret=form.interpret,
    )(bounds, *facts, *arrays)


def _bounds(facts: _Facts, form: _Form, blocks: _Blocks, *, by_keys: bool) -> jax.Array:
    """int32 [B, blocks, 2]: the first block that is seen, and the end; some between may not be."""

    def ends(codes: jax.Array, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The lowest and the highest code in each block, [B, blocks], and its first place."""
        short = -form.length % size
        each = jnp.pad(codes, ((0, 0), (0, short)), constant_values=_NO_KEY)
        each = each.reshape(len(codes), -1, size)
        lowest = jnp.where(each < 0, jnp.inf, each).min(-1)
        return lowest, each.max(-1), jnp.arange(each.shape[1]) * size

    low_key, high_key, key = ends(facts.key_codes, blocks.keys)
    of_queries = ends(facts.query_codes, blocks.queries)
    low_query, high_query, query = (x[..., None] for x in of_queries)
    seen = (low_key[:, None] <= high_query) & (high_key[:, None] >= low_query)
    if form.pattern.causal:
        seen &= key < query + blocks.queries
    if (window := form.pattern.window) is not None:
        seen &= (key < query + blocks.queries + window) & (key + blocks.keys > query - window)
    seen = seen.swapaxes(1, 2) if by_keys else seen
    low = jnp.argmax(seen, -1)
    high = jnp.where(seen.any(-1), seen.shape[-1] - jnp.argmax(seen[..., ::-1], -1), low)
    return jnp.stack([low, high], -1).astype(jnp.int32)


# ------------------------------------------------------------ the kernels


def _forward_kernel(*refs: Ref, form: _Form, blocks: _Blocks) -> None:
    bounds, key_codes, query_codes, bits, before, q, k, v, out, logsum = refs
    block_index, unit = pl.program_id(0), form.scale * _LOG2E
    queries = _queries(query_codes, block_index, form, blocks, axis=0)
    query = _read(q, block_index, blocks.queries, form)
    stream = _stream(bits, before, form)

    def block_of_keys(index: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        highest, total, context = carry
        keys = _keys(key_codes, index, form, blocks, axis=1)
        products = _dot(query, _read(k, index, blocks.keys, form), (1, 1))
        scores = _hidden(products, queries, keys, form)
        new = jnp.maximum(highest, scores.max(1) * unit)
        weights = _power(scores, unit, new[:, None], form)
        shrink = jnp.exp2(highest - new)
        total = total * shrink + weights.sum(1)
        if form.rate:
            weights *= _kept(stream, queries, keys, form)
        value = _read(v, index, blocks.keys, form)
        context = context * shrink[:, None] + _dot(weights.astype(value.dtype), value, (1, 0))
        return new, total, context

    lowest = jnp.full((blocks.queries,), _LOW, jnp.float32)
    nothing = lowest, jnp.zeros_like(lowest), jnp.zeros(query.shape, jnp.float32)
    highest, total, context = jax.lax.fori_loop(bounds[0], bounds[1], block_of_keys, nothing)
    total = jnp.maximum(total, _LEAST)
    context *= (1 / (total * (1 - form.rate)))[:, None]
    _write(out, block_index, context.astype(query.dtype), form)
    _write(logsum, block_index, highest + jnp.log2(total), form)


def _backward_of_queries(*refs: Ref, form: _Form, blocks: _Blocks) -> None:
    bounds, key_codes, query_codes, bits, before, q, k, v, d_out, logsum, out, d_q, means = refs
    block_index, unit = pl.program_id(0), form.scale * _LOG2E
    queries = _queries(query_codes, block_index, form, blocks, axis=0)
    query, gradient, log = (_read(x, block_index, blocks.queries, form) for x in (q, d_out, logsum))
    context = _read(out, block_index, blocks.queries, form).astype(jnp.float32)
    # The mean of the gradients of a query's weights, where those that are kept are not scaled.
    mean = (gradient.astype(jnp.float32) * context).sum(1) * (1 - form.rate)
    _write(means, block_index, mean, form)
    stream = _stream(bits, before, form)

    def block_of_keys(index: jax.Array, d_query: jax.Array) -> jax.Array:
        keys = _keys(key_codes, index, form, blocks, axis=1)
        key, value = (_read(x, index, blocks.keys, form) for x in (k, v))
        scores = _hidden(_dot(query, key, (1, 1)), queries, keys, form)
        weights = _power(scores, unit, log[:, None], form)
        d_weights = _dot(gradient, value, (1, 1))
        if form.rate:
            d_weights *= _kept(stream, queries, keys, form)
        d_scores = weights * (d_weights - mean[:, None])
        return d_query + _dot(d_scores.astype(key.dtype), key, (1, 0))

    nothing = jnp.zeros(query.shape, jnp.float32)
    d_query = jax.lax.fori_loop(bounds[0], bounds[1], block_of_keys, nothing)
    _write(d_q, block_index, (d_query * (form.scale / (1 - form.rate))).astype(query.dtype), form)


def _backward_of_keys(*refs: Ref, form: _Form, blocks: _Blocks) -> None:
    bounds, key_codes, query_codes, bits, before, q, k, v, d_out, logsum, means, d_k, d_v = refs
    block_index, unit = pl.program_id(0), form.scale * _LOG2E
    keys = _keys(key_codes, block_index, form, blocks, axis=0)
    key, value = (_read(x, block_index, blocks.keys, form) for x in (k, v))
    stream = _stream(bits, before, form)

    def block_of_queries(index: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        d_key, d_value = carry
        queries = _queries(query_codes, index, form, blocks, axis=1)
        query, gradient, log, mean = (
            _read(x, index, blocks.queries, form) for x in (q, d_out, logsum, means)
        )
        products = _dot(key, query, (1, 1))  # [keys, queries], as all products here
        scores = _hidden(products, queries, keys, form)
        weights = dropped = _power(scores, unit, log[None], form)
        d_weights = _dot(value, gradient, (1, 1))
        if form.rate:
            keep = _kept(stream, queries, keys, form)
            dropped = weights * keep
            d_weights *= keep
        d_value += _dot(dropped.astype(gradient.dtype), gradient, (1, 0))
        d_scores = weights * (d_weights - mean[None])
        d_key += _dot(d_scores.astype(query.dtype), query, (1, 0))
        return d_key, d_value

    nothing = jnp.zeros(key.shape, jnp.float32)
    sums = jax.lax.fori_loop(bounds[0], bounds[1], block_of_queries, (nothing, nothing))
    for ref, x, scale in zip((d_k, d_v), sums, (form.scale, 1.0), strict=True):
        _write(ref, block_index, (x * (scale / (1 - form.rate))).astype(key.dtype), form)


# ----------------------------------------------------------- inside the kernels


class _Side(NamedTuple):
    """A block of queries or keys along an axis of the products, [n, 1] or [1, n]."""

    places: jax.Array  # int32
    codes: jax.Array


def _side(codes: Ref, index: Index, size: int, form: _Form, outside: float, axis: int) -> _Side:
    places = index * size + jnp.arange(size, dtype=jnp.int32)
    each = places, _read(codes, index, size, form, outside)
    return _Side(*(jnp.expand_dims(x, 1 - axis) for x in each))


def _queries(codes: Ref, index: Index, form: _Form, blocks: _Blocks, *, axis: int) -> _Side:
    return _side(codes, index, blocks.queries, form, _NO_QUERY, axis)


def _keys(codes: Ref, index: Index, form: _Form, blocks: _Blocks, *, axis: int) -> _Side:
    return _side(codes, index, blocks.keys, form, _NO_KEY, axis)


def _hidden(products: jax.Array, queries: _Side, keys: _Side, form: _Form) -> jax.Array:
    """Makes the products of queries with keys that they do not see very low."""
    if form.pattern.causal:
        products = jnp.where(keys.places <= queries.places, products, -(_APART**2))
    if form.pattern.window is not None:
        near = jnp.abs(keys.places - queries.places) <= form.pattern.window
        products = jnp.where(near, products, -(_APART**2))
    # A GPU computes twice as many differences and products as comparisons and choices.
    code_distance = queries.codes - keys.codes
    return products - code_distance * code_distance


def _stream(bits: Ref, before: Ref, form: _Form) -> tuple[jax.Array, jax.Array | int]:
    """Where the numbers of a program's head begin, and the shift that makes its bits highest."""
    head = (before[0] + pl.program_id(1)).astype(jnp.uint32)
    numbers, shift = (head, 0) if form.bits == 32 else (head // 2, 16 * (1 - head % 2))
    return bits[0] + numbers * jnp.uint32(form.length) * jnp.uint32(form.length), shift


def _kept(
    stream: tuple[jax.Array, jax.Array | int], queries: _Side, keys: _Side, form: _Form
) -> jax.Array:
    """1 where a weight is kept, and 0 where it is dropped."""
    first, shift = stream
    first_keys = queries.places.astype(jnp.uint32) * jnp.uint32(form.length) + first
    numbers = mix(first_keys + keys.places.astype(jnp.uint32))
    if form.bits == 16:  # what is below these bits decides nothing
        numbers <<= shift
    threshold = round(form.rate * 2**form.bits) << (32 - form.bits)
    return jnp.where(numbers >= jnp.uint32(threshold), 1.0, 0.0)


def _power(x: jax.Array, scale: float, shift: jax.Array, form: _Form) -> jax.Array:
    if form.interpret:
        return jnp.exp2(x * scale - shift)
    # Two instructions, where XLA, which keeps every rounding and tiny numbers, would make six.
    (result,) = triton.elementwise_inline_asm(
        "{ .reg .f32 y; fma.rn.ftz.f32 y, $1, $2, $3; ex2.approx.ftz.f32 $0, y; }",
        args=[x, jnp.full_like(x, scale), jnp.broadcast_to(-shift, x.shape)],
        constraints="=f,f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, x.dtype)],
    )
    return result


def _dot(a: jax.Array, b: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """The product over one axis of each, with float32 sums."""
    dimensions = ((contract[:1], contract[1:]), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def _read(ref: Ref, index: Index, size: int, form: _Form, outside: float = 0.0) -> jax.Array:
    """Block `index` of an array [S, ...]; places after its end get the value `outside`."""
    at, inside = _block(ref, index, size, form)
    return triton.load(at, mask=inside, other=None if inside is None else outside)


def _write(ref: Ref, index: Index, x: jax.Array, form: _Form) -> None:
    at, inside = _block(ref, index, len(x), form)
    triton.store(at, x, mask=inside)


def _block(ref: Ref, index: Index, size: int, form: _Form) -> tuple[Ref, jax.Array | None]:
    """Block `index` of an array [S, ...], and which of its places are in the array; None: all."""
    at = ref.at[pl.ds(index * size, size)]
    if form.length % size == 0:
        return at, None
    inside = index * size + jnp.arange(size) < form.length
    return at, inside if len(ref.shape) == 1 else inside[:, None]
