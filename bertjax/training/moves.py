"""How the parameters and their gradient move between the devices in an update."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec


class Moves(NamedTuple):
    """Two functions of trees like the parameters.

    Attributes:
      gather: stored parameters -> as a step computes with them.
      spread: the gradient of these -> float32, where the parameters are stored.
    """

    gather: Callable[[Any], Any]
    spread: Callable[[Any], Any]


STAY = Moves(lambda tree: tree, lambda tree: tree)  # of one device


def moves_between(stored: Any, weights: Any) -> Moves:
    """The moves between where parameters are stored and where they are used.

    Args:
      stored: the sharding of each parameter between steps.
      weights: of `bertjax.training.state.weights_in_use`.
    """

    def gather(params):
        def one(leaf, here, used):
            return _move(leaf.astype(used.dtype), here, used.sharding)

        return jax.tree.map(one, params, stored, weights)

    def spread(grads):
        def one(leaf, there, used):
            # Summed whole first: or XLA would break up the product that makes a gradient.
            return _move(leaf, used.sharding, there).astype("float32")

        return jax.tree.map(one, grads, stored, weights)

    return Moves(gather, spread)


def _move(x: jax.Array, here: NamedSharding, there: NamedSharding) -> jax.Array:
    """Moves an array between the devices, with the dimensions joined that stay whole.

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
