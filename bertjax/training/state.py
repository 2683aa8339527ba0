"""The state of training: everything that changes from step to step and is saved together."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import NamedSharding

from bertjax.training.model import Arrays, Params
from bertjax.training.sharding.placement import Placement


class Average(flax.struct.PyTreeNode):
    """The exponential moving average of the parameters, float32; an update keeps `decay` of it."""

    weights: Params
    decay: float = flax.struct.field(pytree_node=False)

    def after(self, params: Params) -> "Average":
        """The average after an update that has led to `params`."""
        new = 1.0 - self.decay
        return self.replace(
            weights=jax.tree.map(lambda a, p: self.decay * a + new * p, self.weights, params)
        )


class TrainState(flax.struct.PyTreeNode):
    """Parameters, optimizer state, updates so far (int32 scalar), average, and what is carried."""

    step: jax.Array
    params: Params
    opt_state: Any
    average: Average | None = None
    carry: Arrays = flax.struct.field(default_factory=dict)

    def checkpointables(self) -> dict[str, Any]:
        """Trees that are saved apart: so parameters can be restored without the optimizer."""
        trees = {"params": self.params, "optimizer": {"step": self.step, "state": self.opt_state}}
        more = {"average": self.average, "carry": self.carry}
        return trees | {name: tree for name, tree in more.items() if tree}

    @classmethod
    def from_checkpointables(cls, trees: dict[str, Any]) -> "TrainState":
        """The inverse of `checkpointables`."""
        optimizer, more = trees["optimizer"], (trees.get("average"), trees.get("carry", {}))
        return cls(optimizer["step"], trees["params"], optimizer["state"], *more)

    def started(self, start: Callable[[Params], Params]) -> "TrainState":
        """The state with other parameters, `start(params)`; an average begins with them."""
        average = self.average and self.average.replace(weights=start(self.average.weights))
        return self.replace(params=start(self.params), average=average)

    def evaluated(self) -> Params:
        """The parameters that the run is judged and opened by."""
        return self.average.weights if self.average else self.params


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)


def sharded(boxed: Any, placement: Placement, *, stored: bool = False) -> Any:
    """Replaces the logical axes of an abstract tree's leaves by shardings."""

    def one(box: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        # `nn.unbox` would move arrays where a mesh is active.
        leaf = box.value if _is_box(box) else box
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    shardings = placement.shardings(boxed, stored=stored)
    return jax.tree.map(one, boxed, shardings, is_leaf=_is_box)


def sharded_for_use(boxed: Any, placement: Placement) -> Any:
    """The shapes, dtypes and shardings in which a step computes with parameters.

    They are stored where they are updated, perhaps as a share on each device. A step has them in
    the dtype `Parameter.gathered_as`, with the sharding that the rules of the layout give.
    """
    return jax.tree.map(
        lambda box, leaf: leaf.update(dtype=jnp.dtype(box.gathered_as)),
        boxed,
        sharded(boxed, placement),
        is_leaf=_is_box,
    )


def logical_axes(init: Callable[[jax.Array], Any]) -> Any:
    """The tree of the parameters that `init` makes, with a tuple of logical axes for each."""
    return jax.tree.map(
        lambda leaf: leaf.names,
        jax.eval_shape(init, jax.random.key(0)),
        is_leaf=_is_box,
    )
