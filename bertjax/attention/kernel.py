"""Attention on TPUs by two Pallas kernels, forward and backward, with dropout.

The scores of a block of queries stay in the chip's fast memory: the arrays [S, S] of all pairs of
positions are never written. One program computes the heads that share 128 lanes of one sequence.
Scores are kept transposed, [keys, queries]. So the sums over keys are sums of vector registers, the
statistics of the queries lie along lanes, and no array of scores is transposed. For the backward
pass the output and the logarithm of each query's sum are kept; the rest is computed again.

The bits of dropout are those of `bertjax.layers.dropout.keep_mask`, so a run may go on with another
implementation.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from bertjax.attention.contract import Mask, Pattern, dropping
from bertjax.base import axes
from bertjax.layers.dropout import mix, row_bits
from bertjax.layers.mesh_axes import mesh_axes

T = TypeVar("T")
Index = jax.Array | int
Ref = Any  # an array in the memory of a chip, which a kernel reads or writes

LANES = 128
_LOW = -1e30  # the score of a key that a query does not see
_UNROLLED = 4  # up to so many blocks of queries are unrolled
_UNSEEN = -1e29  # a query whose highest score is below this sees no key


class Form(NamedTuple):
    """The facts about a kernel that are known when it is compiled.

    Attributes:
      length: S, a multiple of 128.
      width: H, which divides 128.
      queries: C, the queries of a block.
      keys: T, the keys that a block of queries is multiplied with: all, or those of the window.
      pattern: see `bertjax.attention.contract`.
      packed: whether a sequence has several documents.
      rate: the rate of dropout.
    """

    length: int
    width: int
    queries: int
    keys: int
    pattern: Pattern
    packed: bool
    rate: float

    @property
    def heads(self) -> int:
        """G, the heads that share the lanes."""
        return LANES // self.width

    @property
    def blocks(self) -> int:
        """How many blocks of queries a sequence has."""
        return self.length // self.queries

    def first_key(self, block: Index) -> Index:
        """The first key that a block of queries is multiplied with."""
        if self.keys == self.length:
            return 0
        before = (self.keys - self.queries) // 2
        first = jnp.clip(block * self.queries - before, 0, self.length - self.keys)
        return pl.multiple_of(first, LANES)


def form_of(
    length: int, width: int, pattern: Pattern, packed: bool, rate: float, most: int
) -> Form:
    """The form of a kernel whose blocks have at most `most` queries."""
    keys, reach = length, 0
    if pattern.window is not None:
        most, reach = LANES, -(-pattern.window // LANES) * LANES
        keys = min(length, most + 2 * reach)
    queries = max(c for c in range(LANES, most + 1, LANES) if length % c == 0)
    return Form(length, width, queries, keys, pattern, packed, rate)


def _dot(a: jax.Array, b: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """The product over one axis of each, with float32 sums."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    dimensions = ((contract[:1], contract[1:]), ((), ()))
    return jax.lax.dot_general(
        a, b, dimensions, precision=precision, preferred_element_type=jnp.float32
    )


def _of_head(x: jax.Array, head: int, form: Form) -> jax.Array:
    """x [n, 128] with zeros in the lanes of the other heads."""
    if form.heads == 1:
        return x
    lane = jax.lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    return x * (jax.lax.div(lane, form.width) == head).astype(x.dtype)


class _Keys(NamedTuple):
    """The keys that a block of queries is multiplied with.

    Attributes:
      keys, values: [T, 128], of all heads.
      codes: float32 [T, 128], the codes of the keys, equal in all lanes; see `_visible`.
    """

    keys: jax.Array
    values: jax.Array
    codes: jax.Array


def _keys_of(block: Index, k: Ref, v: Ref, codes: Ref, form: Form) -> _Keys:
    there = pl.ds(form.first_key(block), form.keys)
    # A row of 32-bit numbers becomes a column by the transposition of a matrix of equal rows.
    row = codes[0, :1, there].astype(jnp.float32)
    return _Keys(k[0, there], v[0, there], jnp.broadcast_to(row, (LANES, form.keys)).T)


def _shared(keys_of: Callable[[Index], T], form: Form) -> Callable[[Index], T]:
    """`keys_of`; if all blocks have the same keys, it is called once for all of them."""
    if form.keys < form.length:
        return keys_of
    of_all = keys_of(0)
    return lambda block: of_all


def _visible(keys: _Keys, codes: Ref, block: Index, form: Form) -> jax.Array:
    """Bool [T, C]: whether a query (column) of a block sees a key (row).

    Args:
      codes: [1, 2, S], the code of each position as a key and as a query. A query sees the keys
        with its own code. Keys of padding have the code -1.
    """
    of_keys = jnp.concatenate([keys.codes] * (form.queries // LANES), 1)
    if form.packed:
        visible = of_keys == codes[0, 1:, _queries(block, form)].astype(jnp.float32)
    else:
        visible = of_keys >= 0
    pattern, shape = form.pattern, (form.keys, form.queries)
    if pattern.causal or pattern.window is not None:
        key = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + form.first_key(block)
        query = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + block * form.queries
        if pattern.causal:
            visible &= key <= query
        if pattern.window is not None:
            visible &= jnp.abs(key - query) <= pattern.window
    return visible


def _queries(block: Index, form: Form) -> pl.Slice:
    return pl.ds(block * form.queries, form.queries)


def _keep_mask(bits: jax.Array, head: jax.Array, block: Index, form: Form) -> jax.Array:
    """The mask of dropout of a head, [T, C]; see `bertjax.layers.dropout.keep_mask`."""
    shape = form.keys, form.queries
    length = jnp.uint32(form.length)
    key = jax.lax.broadcasted_iota(jnp.uint32, shape, 0)
    query = jax.lax.broadcasted_iota(jnp.uint32, shape, 1)
    first_query = jnp.asarray(block * form.queries, jnp.uint32)
    first_key = jnp.asarray(form.first_key(block), jnp.uint32)
    first = bits + (head.astype(jnp.uint32) * length + first_query) * length + first_key
    return mix(query * length + key + first) >= jnp.uint32(round(form.rate * 2**32))


def _forward_kernel(
    bits: Ref,
    first_head: Ref,
    q: Ref,
    k: Ref,
    v: Ref,
    codes: Ref,
    out: Ref,
    logsum: Ref,
    *,
    form: Form,
) -> None:
    row, group = pl.program_id(0), pl.program_id(1)
    scale = form.width**-0.5

    def keys_of(block: Index) -> tuple[_Keys, jax.Array]:
        keys = _keys_of(block, k, v, codes, form)
        return keys, keys.values.T

    of_block = _shared(keys_of, form)

    def block_of_queries(block: jax.Array, _: int) -> int:
        here = _queries(block, form)
        keys, values = of_block(block)
        visible = _visible(keys, codes, block, form)
        query = q[0, here] * jnp.asarray(scale, q.dtype)
        contexts = []
        for h in range(form.heads):
            scores = _dot(keys.keys, _of_head(query, h, form), (1, 1))  # [T, C]
            scores = jnp.where(visible, scores, _LOW)
            highest = scores.max(0, keepdims=True)
            weights = jnp.exp(scores - highest)
            total = weights.sum(0, keepdims=True)
            if form.rate:
                head = first_head[0] + group * form.heads + h
                weights = jnp.where(_keep_mask(bits[row], head, block, form), weights, 0.0)
            of_head = values[h * form.width : (h + 1) * form.width]
            context = _dot(of_head, weights.astype(values.dtype), (1, 0))  # [H, C]
            contexts.append(context / (total * (1 - form.rate)))
            logsum[0, 0, h : h + 1, here] = highest + jnp.log(total)
        out[0, here] = jnp.concatenate(contexts, 0).T.astype(out.dtype)
        return 0

    jax.lax.fori_loop(0, form.blocks, block_of_queries, 0, unroll=form.blocks <= _UNROLLED)


def _backward_kernel(*refs: Ref, form: Form) -> None:
    bits, first_head, q, k, v, codes, logsum, out, d_out, d_qkv, d_k, d_v = refs
    row, group = pl.program_id(0), pl.program_id(1)
    scale, groups = form.width**-0.5, pl.num_programs(1)

    def columns(i: int) -> Ref:
        return d_qkv.at[0, :, pl.ds((i * groups + group) * LANES, LANES)]

    def keys_of(block: Index) -> tuple[_Keys, jax.Array]:
        keys = _keys_of(block, k, v, codes, form)
        return keys, (keys.keys * jnp.asarray(scale, k.dtype)).T  # [128, T]

    of_block = _shared(keys_of, form)

    def block_of_queries(block: jax.Array, _: int) -> int:
        here, there = _queries(block, form), pl.ds(form.first_key(block), form.keys)
        keys, scaled = of_block(block)
        visible = _visible(keys, codes, block, form)
        query = q[0, here] * jnp.asarray(scale, q.dtype)
        gradient = d_out[0, here].astype(jnp.float32)
        means = (gradient * out[0, here].astype(jnp.float32)).T  # [128, C]
        gradient = (gradient / (1 - form.rate)).astype(query.dtype)
        d_queries: list[jax.Array] = []
        d_keys: jax.Array | float = 0.0
        d_values: jax.Array | float = 0.0
        for h in range(form.heads):
            of_query, of_gradient = (_of_head(x, h, form) for x in (query, gradient))
            mean = means[h * form.width : (h + 1) * form.width].sum(0, keepdims=True)
            logs = logsum[0, 0, h : h + 1, here]
            # A query that sees nothing has no gradient.
            logs = jnp.where(logs > _UNSEEN, logs, -_LOW)
            scores = jnp.where(visible, _dot(keys.keys, of_query, (1, 1)), _LOW)
            weights = jnp.exp(scores - logs)
            d_weights = _dot(keys.values, of_gradient, (1, 1))
            dropped = weights
            if form.rate:
                head = first_head[0] + group * form.heads + h
                keep = _keep_mask(bits[row], head, block, form)
                dropped = jnp.where(keep, weights, 0.0)
                d_weights = jnp.where(keep, d_weights, 0.0)
            d_scores = (weights * (d_weights - mean)).astype(query.dtype)
            d_values += _dot(dropped.astype(query.dtype), of_gradient, (1, 0))
            d_keys += _dot(d_scores, of_query, (1, 0))
            of_key = scaled[h * form.width : (h + 1) * form.width]
            d_queries.append(_dot(of_key, d_scores, (1, 0)))  # [H, C]
        columns(0)[here] = jnp.concatenate(d_queries, 0).T.astype(d_qkv.dtype)
        d_k[there] += d_keys
        d_v[there] += d_values
        return 0

    d_k[...] = jnp.zeros_like(d_k)
    d_v[...] = jnp.zeros_like(d_v)
    jax.lax.fori_loop(0, form.blocks, block_of_queries, 0, unroll=form.blocks <= _UNROLLED)
    for i, gradient in enumerate((d_k, d_v), 1):
        columns(i)[...] = gradient[...].astype(d_qkv.dtype)


def _specs(form: Form, groups: int) -> tuple[list[pl.BlockSpec], pl.BlockSpec, pl.BlockSpec]:
    """The blocks of a program: 128 columns of queries, keys and values; the codes; the sums."""
    columns = [
        pl.BlockSpec((1, form.length, LANES), lambda b, g, *_, i=i: (b, 0, i * groups + g))
        for i in range(3)
    ]
    codes = pl.BlockSpec((1, 2, form.length), lambda b, *_: (b, 0, 0))
    logsum = pl.BlockSpec((1, 1, form.heads, form.length), lambda b, g, *_: (b, g, 0, 0))
    return columns, codes, logsum


def _settings(interpret: bool) -> dict[str, Any]:
    if interpret:
        return {"interpret": True}
    params = pltpu.CompilerParams(
        dimension_semantics=("parallel", "arbitrary"),  # of sequences, and of the groups of heads
        vmem_limit_bytes=100 * 2**20,  # of 128 MiB
    )
    return {"compiler_params": params}


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _attend(
    qkv: jax.Array,
    codes: jax.Array,
    bits: jax.Array,
    first_head: jax.Array,
    forms: tuple[Form, ...],
    interpret: bool,
) -> jax.Array:
    """The context [B, S, N * H] of one device.

    Args:
      qkv: [B, S, 3 * N * H].
      codes: int32 [B, 2, S], see `_visible`.
      bits: uint32 [B], `bertjax.layers.dropout.row_bits` of these rows.
      first_head: int32 [1], the number of the first of these heads.
      forms: the form of the forward kernel, and that of the backward kernel.
    """
    return _forward(qkv, codes, bits, first_head, forms, interpret)[0]


def _forward(
    qkv: jax.Array,
    codes: jax.Array,
    bits: jax.Array,
    first_head: jax.Array,
    forms: tuple[Form, ...],
    interpret: bool,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    (form, _), (batch, length, columns) = forms, qkv.shape
    groups = columns // 3 // LANES
    of_qkv, of_codes, of_logsum = _specs(form, groups)
    out, logsum = pl.pallas_call(
        functools.partial(_forward_kernel, form=form),
        name="attention_forward",
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, groups),
            in_specs=[*of_qkv, of_codes],
            out_specs=[of_qkv[0], of_logsum],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((batch, length, columns // 3), qkv.dtype),
            jax.ShapeDtypeStruct((batch, groups, form.heads, length), jnp.float32),
        ],
        **_settings(interpret),
    )(bits, first_head, qkv, qkv, qkv, codes)
    return out, (qkv, codes, bits, first_head, out, logsum)


def _backward(
    forms: tuple[Form, ...], interpret: bool, residuals: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, None, None, None]:
    qkv, codes, bits, first_head, out, logsum = residuals
    (_, form), (batch, length, columns) = forms, qkv.shape
    groups = columns // 3 // LANES
    of_qkv, of_codes, of_logsum = _specs(form, groups)
    d_qkv = pl.pallas_call(
        functools.partial(_backward_kernel, form=form),
        name="attention_backward",
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(batch, groups),
            in_specs=[*of_qkv, of_codes, of_logsum, of_qkv[0], of_qkv[0]],
            # All programs of a sequence write into it, each its own columns.
            out_specs=pl.BlockSpec((1, length, columns), lambda b, *_: (b, 0, 0)),
            scratch_shapes=[pltpu.VMEM((length, LANES), jnp.float32)] * 2,
        ),
        out_shape=jax.ShapeDtypeStruct(qkv.shape, qkv.dtype),
        **_settings(interpret),
    )(bits, first_head, qkv, qkv, qkv, codes, logsum, out, gradient)
    return d_qkv, None, None, None


_attend.defvjp(_forward, _backward)


def serves(length: int, heads: int, width: int, dtype: jax.typing.DTypeLike) -> bool:
    """Whether the kernels support such sequences, and are faster than einsum."""
    (axis,) = mesh_axes((axes.ACTIVATION_HEADS,)) or (None,)
    of_device = heads // (jax.sharding.get_abstract_mesh().shape[axis] if axis else 1)
    fills_lanes = LANES % width == 0 and of_device * width % LANES == 0
    # VMEM has the whole gradient of a sequence's qkv, twice.
    fits = 2 * length * 3 * of_device * width * jnp.dtype(dtype).itemsize <= 80 * 2**20
    return length >= 256 and length % LANES == 0 and fills_lanes and fits


def kernel_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: Pattern,
    *,
    rate: float,
    seed: jax.Array | None,
    interpret: bool = False,
) -> jax.Array:
    """See `bertjax.attention.contract`; only for shapes that `serves` accepts, and a mask of keys.

    Args:
      interpret: whether JAX executes the kernels' instructions, on any platform.
    """
    rate, seed = dropping(rate, seed)
    rows, length = mask.keys.shape
    packed = mask.segment_ids is not None
    of_queries = mask.segment_ids
    if of_queries is None:
        of_queries = jnp.zeros_like(mask.keys, jnp.int32)
    of_keys = jnp.where(mask.keys.astype(bool), of_queries, -1)
    codes = jnp.stack([of_keys, of_queries], 1).astype(jnp.int32)  # [B, 2, S]
    arrays = qkv, codes, row_bits(seed, rows)
    # The fastest blocks, forward and backward; for longer sequences they do not fit into VMEM.
    blocks = (512, 256) if length <= 2048 else (LANES, LANES)
    forms = tuple(form_of(length, qkv.shape[-1], pattern, packed, rate, most) for most in blocks)
    split = mesh_axes((axes.BATCH, axes.ACTIVATION_HEADS))
    if split is None:
        return _of_device(*arrays, 0, forms, interpret)
    of_rows, of_heads = split

    # The rows and the heads of a device.
    def of_device(qkv: jax.Array, codes: jax.Array, bits: jax.Array) -> jax.Array:
        before = 0 if of_heads is None else jax.lax.axis_index(of_heads) * qkv.shape[3]
        return _of_device(qkv, codes, bits, before, forms, interpret)

    return jax.shard_map(
        of_device,
        in_specs=(PartitionSpec(of_rows, None, None, of_heads), *(PartitionSpec(of_rows),) * 2),
        out_specs=PartitionSpec(of_rows, None, of_heads),
        check_vma=False,
    )(*arrays)


def _of_device(
    qkv: jax.Array,
    codes: jax.Array,
    bits: jax.Array,
    heads_before: jax.Array | int,
    forms: tuple[Form, ...],
    interpret: bool,
) -> jax.Array:
    """Attention of the rows and the heads of one device, with the forms of both kernels."""
    batch, length, _, heads, width = qkv.shape
    first_head = jnp.full((1,), heads_before, jnp.int32)
    flat = qkv.reshape(batch, length, 3 * heads * width)
    context = _attend(flat, codes, bits, first_head, forms, interpret)
    return context.reshape(batch, length, heads, width)
