"""The state of training: everything that changes from step to step and is saved together."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from bertjax.sharding.placement import Placement


@flax.struct.dataclass
class Average:
    """An exponential moving average of the parameters (EMA), which begins as they do.

    Attributes:
      weights: like the parameters, float32.
      decay: the share of the average that an update keeps.
    """

    weights: Any
    decay: float = flax.struct.field(pytree_node=False)

    def after(self, params: Any) -> "Average":
        """The average after an update that has led to `params`."""
        new = 1.0 - self.decay
        return self.replace(
            weights=jax.tree.map(lambda a, p: self.decay * a + new * p, self.weights, params)
        )


@flax.struct.dataclass
class TrainState:
    """The parameters, the optimizer state, and the number of updates so far (int32 scalar).

    Attributes:
      average: of the parameters; None: none is kept.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    average: Average | None = None

    def parts(self) -> dict[str, Any]:
        """The parts of a checkpoint; so parameters can be restored without the optimizer."""
        average = {"average": self.average} if self.average else {}
        optimizer = {"step": self.step, "state": self.opt_state}
        return {"params": self.params, "optimizer": optimizer} | average

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> "TrainState":
        """The inverse of `parts`."""
        optimizer = parts["optimizer"]
        return cls(optimizer["step"], parts["params"], optimizer["state"], parts.get("average"))

    def started(self, start: Callable[[Any], Any]) -> "TrainState":
        """The state with other parameters, `start(params)`; an average begins with them."""
        average = self.average and self.average.replace(weights=start(self.average.weights))
        return self.replace(params=start(self.params), average=average)

    def evaluated(self) -> Any:
        """The weights that the run is judged and opened by."""
        return self.average.weights if self.average else self.params


def logical_axes(init: Callable[[jax.Array], Any]) -> Any:
    """The tree of the parameters that `init` makes, with a tuple of logical axes for each."""
    return jax.tree.map(
        lambda leaf: leaf.names,
        jax.eval_shape(init, jax.random.key(0)),
        is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )


def abstract_state(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    placement: Placement,
    ema: float = 0.0,
) -> TrainState:
    """The shapes, dtypes and shardings of the state; no array is made.

    Args:
      init: maps a key to parameters, with logical axes on every leaf.
      ema: the decay of the average of the parameters; 0: none is kept.
    """

    def make(key):
        return _fresh(init(key), optimizer, ema)

    boxed = jax.eval_shape(make, jax.random.key(0))
    return placed(boxed, placement, stored=True)


def _fresh(params: Any, optimizer: optax.GradientTransformation, ema: float) -> TrainState:
    average = Average(params, ema) if ema else None
    return TrainState(jnp.int32(0), params, optimizer.init(params), average)


def placed(boxed: Any, placement: Placement, *, stored: bool = False) -> Any:
    """Replaces the logical axes of an abstract tree's leaves by shardings."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.unbox(boxed),
        placement.shardings(boxed, stored=stored),
    )


def weights_in_use(init: Callable[[jax.Array], Any], placement: Placement) -> Any:
    """The shapes, dtypes and shardings in which a step computes with the parameters.

    A parameter is stored where it is updated, which may be a share on each device; it is used in
    its own dtype, where the layout's table of parameters says.
    """
    boxed = jax.eval_shape(init, jax.random.key(0))
    return jax.tree.map(
        lambda box, weight: weight.update(dtype=jnp.dtype(box.gathered_as)),
        boxed,
        placed(boxed, placement),
        is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )


def init_state(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    abstract: TrainState,
    seed: int,
) -> TrainState:
    """Makes a new state directly in its shardings; its values are the same on any mesh."""
    return compiled_init(init, optimizer, abstract)(seed)


def compiled_init(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    abstract: TrainState,
) -> Callable[[int], TrainState]:
    """A compiled function that maps a seed to a new state."""
    ema = abstract.average.decay if abstract.average else 0.0

    def make(seed):
        return _fresh(nn.unbox(init(jax.random.key(seed))), optimizer, ema)

    return jax.jit(make, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, abstract))
