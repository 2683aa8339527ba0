"""Gathers parameters from the devices that store them, and scatters their gradient back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.training.model import Params


class Moves(NamedTuple):
    """Two functions of trees like the parameters.

    Attributes:
      gather: parameters as they are stored -> as a step computes with them.
      scatter: the gradient of gathered parameters -> float32, where the parameters are stored.
    """

    gather: Callable[[Params], Params]
    scatter: Callable[[Params], Params]


STAY = Moves(lambda tree: tree, lambda tree: tree)  # on one device


def moves_between(stored: Any, used: Any) -> Moves:
    """The moves between where parameters are stored and where they are used.

    Args:
      stored: the sharding of each parameter between steps.
      used: the result of `bertjax.training.state.placed_for_use`.
    """

    def gather(params: Params) -> Params:
        def one(leaf: jax.Array, stored: NamedSharding, used: jax.ShapeDtypeStruct) -> jax.Array:
            return _move(leaf.astype(used.dtype), stored, used.sharding)

        return jax.tree.map(one, params, stored, used)

    def scatter(grads: Params) -> Params:
        def one(leaf: jax.Array, stored: NamedSharding, used: jax.ShapeDtypeStruct) -> jax.Array:
            # It is summed whole first; otherwise XLA would break up the product that makes it.
            return _move(leaf, used.sharding, stored).astype("float32")

        return jax.tree.map(one, grads, stored, used)

    return Moves(gather, scatter)


def _move(x: jax.Array, here: NamedSharding, there: NamedSharding) -> jax.Array:
    """Moves an array between the devices; adjacent dimensions that are not split are joined first.

    A TPU pads the last two dimensions to its tiles, [12, 64] to [16, 128]; with these joined, less
    is moved, and nothing is rearranged for a product that takes them joined.
    """
    sizes: list[int] = []
    splits: list[tuple[str | None, str | None]] = []
    # A spec ends with the last dimension that is split.
    specs = ((*sharding.spec, *[None] * x.ndim)[: x.ndim] for sharding in (here, there))
    for size, *split in zip(x.shape, *specs, strict=True):
        if splits and tuple(split) == splits[-1] == (None, None):
            sizes[-1] *= size
        else:
            sizes.append(size)
            splits.append(tuple(split))
    moved = x.reshape(sizes)
    for place, sharding in enumerate((here, there)):
        spec = PartitionSpec(*(split[place] for split in splits))
        moved = jax.lax.with_sharding_constraint(moved, NamedSharding(sharding.mesh, spec))
    return moved.reshape(x.shape)
