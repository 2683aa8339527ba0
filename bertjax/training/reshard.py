"""Gathers parameters from the devices that store them, and scatters their gradient back."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.training.model import Params


class Reshard(NamedTuple):
    """Two functions of trees like the parameters.

    Attributes:
      gather: parameters as they are stored -> as a step computes with them.
      scatter: the gradient of gathered parameters -> float32, where the parameters are stored.
    """

    gather: Callable[[Params], Params]
    scatter: Callable[[Params], Params]


STAY = Reshard(lambda tree: tree, lambda tree: tree)  # on one device


def reshard_between(stored: Any, used: Any, small: int = 0) -> Reshard:
    """The moves between where parameters are stored and where they are used.

    Shares of fewer than `small` bytes are gathered together with those that are alike, as the
    layers' are, if these have so many bytes. `used` is `bertjax.training.state.sharded_for_use`'s.
    """

    def gather(params: Params) -> Params:
        leaves, tree = jax.tree.flatten(params)
        alike: dict[tuple[NamedSharding, jax.ShapeDtypeStruct], list[int]] = {}
        pairs = zip(jax.tree.leaves(stored), jax.tree.leaves(used), strict=True)
        for place, pair in enumerate(pairs):
            alike.setdefault(pair, []).append(place)
        for pair, places in alike.items():
            gathered = _gather_alike([leaves[place] for place in places], *pair, small)
            for place, leaf in zip(places, gathered, strict=True):
                leaves[place] = leaf
        return jax.tree.unflatten(tree, leaves)

    def scatter(grads: Params) -> Params:
        def scatter_leaf(
            leaf: jax.Array, stored: NamedSharding, used: jax.ShapeDtypeStruct
        ) -> jax.Array:
            # It is summed whole first; otherwise XLA would break up the product that makes it.
            return _move(leaf, used.sharding, stored).astype("float32")

        return jax.tree.map(scatter_leaf, grads, stored, used)

    return Reshard(gather, scatter)


def _gather_alike(
    leaves: Sequence[jax.Array], stored: NamedSharding, used: jax.ShapeDtypeStruct, small: int
) -> list[jax.Array]:
    """Gathers parameters of one shape, each by itself or, if their shares are small, together."""
    leaves = [leaf.astype(used.dtype) for leaf in leaves]
    sizes, splits = _joined(used.shape, stored, used.sharding)
    share = math.prod(stored.shard_shape(used.shape)) * used.dtype.itemsize
    moves = any(source != target for source, target in splits)
    if not (moves and _WHOLE in splits and share < small <= share * len(leaves)):
        return [_move(leaf, stored, used.sharding) for leaf in leaves]
    # Along this dimension, the gathered whole has each of them as a slice of its rows or columns.
    along = splits.index(_WHOLE)
    together = jnp.concatenate([leaf.reshape(sizes) for leaf in leaves], along)
    together = _constrain(together, splits, stored, used.sharding)
    return [leaf.reshape(used.shape) for leaf in jnp.split(together, len(leaves), along)]


_WHOLE = None, None  # the split of a dimension that is not split
Split = tuple[str | None, str | None]  # the mesh axes that split a dimension here and there


def _joined(
    shape: Sequence[int], source: NamedSharding, target: NamedSharding
) -> tuple[list[int], list[Split]]:
    """The sizes and splits of dimensions; adjacent ones that are not split are joined."""
    # A TPU pads the last two to its tiles, [12, 64] to [16, 128]. So less is moved, and a product
    # that takes them joined rearranges nothing.
    sizes: list[int] = []
    splits: list[Split] = []
    # A spec ends with the last dimension that is split.
    specs = ((*sharding.spec, *[None] * len(shape))[: len(shape)] for sharding in (source, target))
    for size, *axes in zip(shape, *specs, strict=True):
        split = axes[0], axes[1]
        if splits and split == splits[-1] == _WHOLE:
            sizes[-1] *= size
        else:
            sizes.append(size)
            splits.append(split)
    return sizes, splits


def _move(x: jax.Array, source: NamedSharding, target: NamedSharding) -> jax.Array:
    sizes, splits = _joined(x.shape, source, target)
    return _constrain(x.reshape(sizes), splits, source, target).reshape(x.shape)


def _constrain(
    x: jax.Array, splits: Sequence[Split], source: NamedSharding, target: NamedSharding
) -> jax.Array:
    for place, sharding in enumerate((source, target)):
        spec = PartitionSpec(*(split[place] for split in splits))
        x = jax.lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, spec))
    return x
