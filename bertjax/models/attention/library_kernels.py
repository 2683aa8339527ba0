"""Attention on GPUs by kernels of libraries, which skip what a document or a window does not see.

The kernels take the places where documents start. The padding of a row is a document of its own.

  FlashAttention (arXiv 2205.14135) of `dew-flash-attn-cu13`: version 3 on Hopper, version 2 on
      Ampere, Ada and Blackwell's workstations. It serves windows, too.
  cuDNN, by a function that is private in JAX, on Hopper and newer.
"""

import functools
import importlib
import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from bertjax.base import axes
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.layers.mesh_axes import mesh_axes

# Packed documents may have so many tokens in the mean, or more: the kernels need a bound of their
# number when a program is compiled.
TOKENS_OF_DOCUMENT = 64
Attend = Callable[[jax.Array, jax.Array, jax.Array, Mask], jax.Array]


class FlashAttention(NamedTuple):
    """The library of FlashAttention."""

    # (query, key, value [T, H, D], starts [M + 1], longest, causal, window)
    attend: Callable[..., jax.Array]
    serves: Callable[[int], bool]  # whether it has kernels for a compute capability, such as 90


@functools.cache
def flash_attention() -> FlashAttention | None:
    """The library if it is installed and can be loaded."""
    try:
        library = importlib.import_module("dew_flash_attn")
        architectures, attend = library.ARCHITECTURES, library.flash_mha_varlen
    except ModuleNotFoundError:
        return None
    except Exception as error:  # it loads shared libraries, which fail in many ways
        warnings.warn(f"dew_flash_attn cannot be loaded: {error}", stacklevel=2)
        return None

    def serves(capability: int) -> bool:
        # Code for 8.0 runs on all of 8.x; each other generation has its own.
        generation = 80 if 80 <= capability < 90 else capability
        return f"sm{generation}" in architectures

    return FlashAttention(attend, serves)


@functools.cache
def cudnn_packed() -> Any:
    """JAX's private module of cuDNN's attention, if it takes packed documents; else None."""
    try:
        module = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
        parameters = inspect.signature(module.dot_product_attention).parameters
    except (ImportError, AttributeError):
        return None
    needed = {"q_seqlen", "kv_seqlen", "q_offsets", "kv_offsets", "mask_type", "scale"}
    return module if needed <= set(parameters) and hasattr(module, "MaskType") else None


def flash_self_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    """See `bertjax.models.attention.contract`; without dropout, and `Mask.keys` is [B, S]."""
    assert drop is None
    library = flash_attention()
    assert library is not None

    def attend(query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask) -> jax.Array:
        rows, length, *_ = query.shape
        begins, most = _begins(mask)
        starts = jnp.nonzero(begins.reshape(-1), size=rows * most, fill_value=rows * length)[0]
        starts = jnp.append(starts, rows * length).astype(jnp.int32)
        # Any row may have more documents than `most`, if others have less.
        packed = mask.segment_ids is not None
        query = _nan_where(begins.sum() > rows * most if packed else _too_many(begins, most), query)
        context = library.attend(
            *(x.reshape(rows * length, *x.shape[2:]) for x in (query, key, value)),
            starts,
            length,
            is_causal=pattern.causal,
            window_size=(-1 if pattern.window is None else pattern.window,) * 2,
        )
        return context.reshape(query.shape)

    return _sharded_by_rows(attend, query, key, value, mask)


def cudnn_self_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    """See `bertjax.models.attention.contract`; without dropout, and `Mask.keys` is [B, S]."""
    assert drop is None
    assert pattern == AttentionPattern()
    cudnn = cudnn_packed()

    def attend(query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask) -> jax.Array:
        begins, most = _begins(mask)
        query = _nan_where(_too_many(begins, most), query)
        offsets, lengths = _offsets(begins, most)
        return cudnn.dot_product_attention(
            *(query, key, value),
            q_seqlen=lengths,
            kv_seqlen=lengths,
            q_offsets=offsets,
            kv_offsets=offsets,
            mask_type=cudnn.MaskType.PADDING,
            scale=query.shape[-1] ** -0.5,
        )

    return _sharded_by_rows(attend, query, key, value, mask)


def _begins(mask: Mask) -> tuple[jax.Array, int]:
    """Where documents begin, bool [B, S]; and how many a row may have."""
    keys = mask.keys.astype(bool)
    numbers = 0 if mask.segment_ids is None else mask.segment_ids
    codes = jnp.where(keys, numbers, -1)
    first = jnp.ones_like(keys[:, :1])
    begins = jnp.concatenate([first, codes[:, 1:] != codes[:, :-1]], 1)
    # A row that is not packed has a text and padding.
    packed = mask.segment_ids is not None
    return begins, -(-keys.shape[1] // TOKENS_OF_DOCUMENT) + 1 if packed else 2


def _offsets(begins: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """Starts of documents and the last end, then -1: int [B, M + 1]; and lengths [B, M]."""
    rows, length = begins.shape
    count = begins.sum(1, keepdims=True)
    find = jax.vmap(lambda row: jnp.nonzero(row, size=most + 1, fill_value=-1)[0])
    place = jnp.arange(most + 1)
    offsets = jnp.where(place == count, length, find(begins))
    lengths = jnp.where(place[:-1] < count, offsets[:, 1:] - offsets[:, :-1], -1)
    return offsets.astype(jnp.int32), lengths.astype(jnp.int32)


def _too_many(begins: jax.Array, most: int) -> jax.Array:
    return begins.sum(1).max() > most


def _nan_where(fails: jax.Array, query: jax.Array) -> jax.Array:
    """The query, or not a number: no wrong result of rows that the kernels cannot compute."""
    return jnp.where(fails, jnp.nan, query)


def _sharded_by_rows(
    attend: Attend, query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask
) -> jax.Array:
    """On each device, its rows and heads: XLA cannot split a call of a library."""
    split = mesh_axes((axes.BATCH, None, axes.ACTIVATION_HEADS))
    if split is None:
        return attend(query, key, value, mask)
    rows, _, heads = split
    if heads is not None:  # the heads of keys may be fewer than the devices
        readers = query.shape[2] // key.shape[2]
        key, value = (jnp.repeat(x, readers, axis=2) for x in (key, value))
    spec = PartitionSpec(rows, None, heads)
    by_device = partial(jax.shard_map, out_specs=spec, check_vma=False)
    in_specs = spec, spec, spec, PartitionSpec(rows)
    return by_device(attend, in_specs=in_specs)(query, key, value, mask)
