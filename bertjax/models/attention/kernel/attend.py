"""Self-attention on TPUs by two Pallas kernels, forward and backward, for every length.

The scores of a block of queries stay in the chip's fast memory: the arrays [S, S] of all pairs of
positions are never written. A program computes the heads that share 128 lanes of one sequence, for
some hundred queries. If the keys are many, it takes them block by block with a running softmax
(arXiv 2205.14135), and only the blocks that its queries see: those of their documents, of the
window, and not after a causal query. Queries and keys are rotated inside, or multiplied with the
vectors of distances.

Scores are kept transposed, [keys, queries]. So the sums over keys are sums of vector registers, the
statistics of the queries lie along lanes, and no array of scores is transposed. For the backward
pass the output and the logarithm of each query's sum are kept, under checkpoint names, so that
`jax.checkpoint` need not compute them again.

The bits of dropout are those of `bertjax.models.layers.dropout.keep_mask`, so a run may go on with
another implementation.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from bertjax.base import axes
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.disentangled import Distances, by_row
from bertjax.models.attention.kernel.backward import backward
from bertjax.models.attention.kernel.call import KernelInputs
from bertjax.models.attention.kernel.form import LANES, Dropout, Form, form_of, padded_length
from bertjax.models.attention.kernel.forward import forward
from bertjax.models.attention.kernel.pieces import keys_of_piece
from bertjax.models.attention.remat import KERNEL_RESULTS
from bertjax.models.layers.dropout import row_bits
from bertjax.models.layers.mesh_axes import mesh_axes
from bertjax.models.layers.rotary import Rotation


def serves(
    length: int, width: int, dtype: jax.typing.DTypeLike, *, distances: bool = False
) -> bool:
    """Whether the kernels support such sequences, and are faster than einsum."""
    (axis,) = mesh_axes((axes.LENGTH,)) or (None,)
    pieces = jax.sharding.get_abstract_mesh().shape[axis] if axis else 1
    # The length of a sequence may have padding, and that of a piece none.
    whole = pieces == 1 or length % (pieces * LANES) == 0
    # The keys of 128 lanes, or the gradients of all heads' distances, fit into VMEM.
    fits = length * jnp.dtype(dtype).itemsize <= (2 if distances else 64) * 2**10
    return length >= 256 and fits and LANES % width == 0 and whole


def kernel_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    rotation: Rotation | None = None,
    distances: Distances | None = None,
    drop: DropoutSpec | None = None,
    interpret: Any = False,
) -> jax.Array:
    """`bertjax.models.attention.contract`, for shapes that `serves` takes, and a mask of keys.

    With `interpret`, JAX executes the kernels' instructions, on any platform (or its
    `InterpretParams`).
    """
    seed, rate, bits = (drop.seed, drop.rate, drop.bits) if drop else (jnp.uint32(0), 0.0, 32)
    rows, _ = mask.keys.shape
    numbers = jnp.zeros_like(mask.keys, jnp.int32)
    numbers = numbers if mask.segment_ids is None else mask.segment_ids
    # A key and a query of padding have different codes.
    codes = [jnp.where(mask.keys.astype(bool), numbers, padding) for padding in (-1, -2)]
    table = None if rotation is None else _table(rotation, qkv.shape[-1])
    vectors = None
    if distances is not None:
        of_keys, of_queries = by_row(distances)
        vectors = jnp.stack([of_keys, of_queries * (3 * qkv.shape[-1]) ** -0.5])
    arrays = qkv, jnp.stack(codes, 1).astype(jnp.int32), row_bits(seed, rows), table, vectors

    def of_device(
        pieces: str | None,
        heads: str | None,
        qkv: jax.Array,
        codes: jax.Array,
        row_bits: jax.Array,
        table: jax.Array | None,
        vectors: jax.Array | None,
    ) -> jax.Array:
        _, _, _, count, width = qkv.shape
        before = 0 if heads is None else jax.lax.axis_index(heads) * count
        paired = count % 2 == 0 and width < LANES
        rule = Dropout(rate, bits, paired, stride=mask.keys.shape[1])
        arrays = qkv, codes, row_bits, table, vectors, before
        return _of_device(*arrays, pieces, pattern, rule, interpret)

    split = mesh_axes((axes.BATCH, axes.LENGTH, axes.ACTIVATION_HEADS))
    if split is None:
        return of_device(None, None, *arrays)
    of_rows, of_length, of_heads = split
    by_rows, by_all = PartitionSpec(of_rows), PartitionSpec(of_rows, of_length, None, of_heads)
    return jax.shard_map(
        functools.partial(of_device, of_length, of_heads),
        in_specs=(by_all, by_rows, by_rows, PartitionSpec(), PartitionSpec(None, None, of_heads)),
        out_specs=PartitionSpec(of_rows, of_length, of_heads),
        check_vma=False,
    )(*arrays)


def _table(rotation: Rotation, width: int) -> jax.Array:
    each = [jnp.tile(x[..., 0, 0, : width // 2], LANES // width) for x in rotation]
    return jnp.concatenate(each, -1)


def _of_device(
    qkv: jax.Array,
    codes: jax.Array,
    bits: jax.Array,
    table: jax.Array | None,
    vectors: jax.Array | None,
    heads_before: jax.Array | int,
    pieces: str | None,
    pattern: AttentionPattern,
    dropout: Dropout,
    interpret: Any,
) -> jax.Array:
    """The rows and heads of one device, [B, S, N, H]; the mesh axis `pieces` splits the length."""
    batch, length, _, heads, width = qkv.shape
    padding = 0 if pieces else padded_length(length) - length
    more_heads = -heads % (LANES // width)
    columns = (heads + more_heads) * width

    def flat(x: jax.Array) -> jax.Array:
        """[B, T, k, N, H], with padding -> [B, T, k * N * H]."""
        x = jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, more_heads), (0, 0)))
        return x.reshape(batch, x.shape[1], -1)

    arrays: tuple[jax.Array, ...]
    first_query: jax.Array | int
    if pieces is None:
        codes = jnp.pad(codes, ((0, 0), (0, 0), (0, padding)), constant_values=-3)
        table = None if table is None else jnp.pad(table, ((0, padding), (0, 0)))
        arrays, first_query = (flat(qkv),), 0
    else:
        numbered = dropout.rate > 0
        keys = keys_of_piece(qkv, codes, table, pattern, pieces, numbered=numbered)
        arrays = flat(qkv[:, :, :1]), flat(keys.kv)
        codes, table, first_query = keys.codes, keys.table, keys.first_query
    first = jnp.stack([jnp.int32(heads_before), jnp.int32(first_query)])
    sizes = codes.shape[2], length + padding, width
    rotary, by_distance = table is not None, vectors is not None
    forms = (
        form_of(*sizes, pattern, dropout, rotary=rotary, by_distance=by_distance, backward=False),
        form_of(*sizes, pattern, dropout, rotary=rotary, by_distance=by_distance, backward=True),
    )
    if vectors is not None:
        sides = (0, 0), (padding, padding), (0, more_heads), (0, 0)
        vectors = jnp.pad(vectors, sides).reshape(2, -1, columns)
    inputs = KernelInputs(arrays, codes, bits, first, table, vectors)
    context = _attend(inputs, forms, columns // LANES, interpret)
    return context.reshape(batch, length + padding, -1, width)[:, :length, :heads]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _attend(
    inputs: KernelInputs, forms: tuple[Form, Form], groups: int, interpret: Any
) -> jax.Array:
    """The context [B, S, N * H] of one device; `forms`: of the forward and backward kernels."""
    return _forward(inputs, forms, groups, interpret)[0]


def _forward(
    inputs: KernelInputs, forms: tuple[Form, Form], groups: int, interpret: Any
) -> tuple[jax.Array, tuple[KernelInputs, jax.Array, jax.Array]]:
    results = forward(inputs, forms[0], groups, interpret)
    out, logsum = (checkpoint_name(x, KERNEL_RESULTS) for x in results)
    return out, (inputs, out, logsum)


def _backward(
    forms: tuple[Form, Form],
    groups: int,
    interpret: Any,
    residuals: tuple[KernelInputs, jax.Array, jax.Array],
    gradient: jax.Array,
) -> tuple[Any]:
    inputs, out, logsum = residuals
    arrays = backward(inputs, forms[1], groups, out, logsum, gradient, interpret)
    no_gradients = dict.fromkeys(("codes", "bits", "first", "table"))
    if inputs.vectors is not None:
        *arrays, d_vectors = arrays
        d_vectors = d_vectors.swapaxes(1, 2).astype(inputs.vectors.dtype)
        inputs = inputs._replace(vectors=d_vectors)
    return (inputs._replace(arrays=tuple(arrays), **no_gradients),)  # type: ignore[arg-type]


_attend.defvjp(_forward, _backward)
