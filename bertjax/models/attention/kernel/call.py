"""The arguments of the kernels of attention on one device, and the blocks of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.kernel.form import LANES, Form

_TWICE = 8192  # up to so many keys, the next group's are loaded while this one's are used
_SHORT = 16_384  # up to so many keys, half of the 128 MiB of VMEM will do, and XLA has the rest


class KernelInputs(NamedTuple):
    """The arguments of both kernels."""

    arrays: tuple[jax.Array, ...]  # `q` and `kv`, or one array for both
    codes: jax.Array  # int32 [B, 2, T], of each position as a key and as a query (`blocks.visible`)
    bits: jax.Array  # uint32 [B], `dropout.row_bits` of these rows
    first: jax.Array  # int32 [2], the number of the first of these heads, and of these queries
    table: jax.Array | None  # float32 [T, 128] (`blocks.rotated`)
    vectors: jax.Array | None  # [2, 2 T, columns] (`distances`)

    @property
    def q(self) -> jax.Array:
        """[B, S, columns], whose first columns are the queries."""
        return self.arrays[0]

    @property
    def kv(self) -> jax.Array:
        """[B, T, columns], whose last columns are the keys and then the values."""
        return self.arrays[-1]

    def scalars(self, form: Form) -> tuple[jax.Array, ...]:
        """The arguments that a kernel knows before its blocks."""
        bounds = bounds_of(self.codes, self.first[1], self.q.shape[1], form)
        return self.bits, self.first, bounds

    def in_blocks(self) -> tuple[jax.Array, ...]:
        """The arguments that a kernel takes by the blocks of `in_specs`."""
        others = (x for x in (self.table, self.vectors) if x is not None)
        return self.q, self.kv, self.kv, self.codes, *others


def bounds_of(codes: jax.Array, first_query: jax.Array, queries: int, form: Form) -> jax.Array:
    """int32 [B, S / R, 2]: the first block of keys that a step's queries see, and the one after.

    Documents may have any order, so some blocks between the bounds may not be seen.
    """
    if not form.streamed:
        return jnp.zeros((1, 1, 2), jnp.int32)
    rows, _, length = codes.shape
    of_keys = codes[:, 0].reshape(rows, -1, form.keys)
    query_codes = jax.lax.dynamic_slice_in_dim(codes[:, 1], first_query, queries, 1)
    of_queries = query_codes.reshape(rows, -1, form.step)
    # The numbers of a block of keys and of a step's queries overlap: [B, S / R, T / K].
    seen = _lowest(of_keys)[:, None] <= of_queries.max(-1)[..., None]
    seen &= of_keys.max(-1)[:, None] >= _lowest(of_queries)[..., None]
    first_keys = jnp.arange(0, length, form.keys)
    places = first_query + jnp.arange(0, queries, form.step)[:, None]
    if form.pattern.causal:
        seen &= first_keys < places + form.step
    if (window := form.pattern.window) is not None:
        seen &= first_keys < places + form.step + window
        seen &= first_keys + form.keys > places - window
    count = length // form.keys
    low = jnp.argmax(seen, -1)
    high = jnp.where(seen.any(-1), count - jnp.argmax(seen[..., ::-1], -1), low)
    return jnp.stack([low, high], -1).astype(jnp.int32)


def _lowest(codes: jax.Array) -> jax.Array:
    """The lowest number of a document in each block."""
    return jnp.where(codes >= 0, codes, jnp.iinfo(jnp.int32).max).min(-1)


def in_specs(inputs: KernelInputs, form: Form, groups: int) -> list[pl.BlockSpec]:
    """The blocks of `KernelInputs.in_blocks`: rows of queries, and all of the others."""
    once = pl.Buffered(1) if form.length > _TWICE else None
    columns = inputs.kv.shape[2] // LANES
    of_keys, of_values = (
        pl.BlockSpec(
            (1, form.length, LANES),
            lambda b, g, *_, first=columns - groups * back: (b, 0, first + g),
            pipeline_mode=once,
        )
        for back in (2, 1)
    )
    codes = pl.BlockSpec((1, 2, form.length), lambda b, *_: (b, 0, 0))
    table = pl.BlockSpec((form.length, LANES), lambda *_: (0, 0), pipeline_mode=pl.Buffered(1))
    others = [table] if form.rotary else []
    if form.by_distance:
        others.append(pl.BlockSpec((2, 2 * form.length, LANES), lambda b, g, *_: (0, 0, g)))
    return [rows(form), of_keys, of_values, codes, *others]


def scratch(form: Form, dtype: jax.typing.DTypeLike) -> Any:
    """Memory for what is made once for all keys: their transpose, or the columns of their codes."""
    if form.unaligned:
        return pltpu.VMEM((form.length, LANES), jnp.float32)
    return pltpu.VMEM((LANES, form.length), dtype)


def rows(form: Form) -> pl.BlockSpec:
    """The queries of a step, or results of them: [1, R, 128]."""
    return pl.BlockSpec((1, form.step, LANES), lambda b, g, i, *_: (b, i, g))


def sums(form: Form) -> pl.BlockSpec:
    """The logarithm of each query's sum: [1, 1, G, R]."""
    return pl.BlockSpec((1, 1, form.heads, form.step), lambda b, g, i, *_: (b, g, 0, i))


def settings(form: Form, interpret: Any, *, apart: bool = True) -> dict[str, Any]:
    """How a kernel is compiled, or executed by JAX; `apart`: no two sequences add to one array."""
    if interpret:
        return {"interpret": interpret}
    params = pltpu.CompilerParams(
        # The axes of the grid are sequences, groups of heads, and steps of queries.
        dimension_semantics=("parallel" if apart else "arbitrary", "arbitrary", "arbitrary"),
        vmem_limit_bytes=(64 if form.length <= _SHORT else 110) * 2**20,
    )
    # The compile report counts the loop over blocks of keys with so many rounds.
    metadata = {"rounds": str(form.most_blocks)} if form.streamed else None
    return {"compiler_params": params, "metadata": metadata}
