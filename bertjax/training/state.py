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
class TrainState:
    """The parameters, the optimizer state, and the number of updates so far (int32 scalar)."""

    step: jax.Array
    params: Any
    opt_state: Any

    def parts(self) -> dict[str, Any]:
        """The parts of a checkpoint; so parameters can be restored without the optimizer."""
        return {"params": self.params, "optimizer": {"step": self.step, "state": self.opt_state}}

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> "TrainState":
        """The inverse of `parts`."""
        optimizer = parts["optimizer"]
        return cls(optimizer["step"], parts["params"], optimizer["state"])


def abstract_state(
    init: Callable[[jax.Array], Any],
    optimizer: optax.GradientTransformation,
    placement: Placement,
) -> TrainState:
    """The shapes, dtypes and shardings of the state; no array is made.

    Args:
      init: maps a key to parameters, with logical axes on every leaf.
    """

    def make(key):
        params = init(key)
        return TrainState(jnp.int32(0), params, optimizer.init(params))

    boxed = jax.eval_shape(make, jax.random.key(0))
    placed_state = placed(boxed, placement)
    return placed_state.replace(opt_state=placed(boxed.opt_state, placement, of_optimizer=True))


def placed(boxed: Any, placement: Placement, *, of_optimizer: bool = False) -> Any:
    """Replaces the logical axes of an abstract tree's leaves by shardings."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.unbox(boxed),
        placement.shardings(boxed, of_optimizer=of_optimizer),
    )


def where_updated(abstract: TrainState) -> Any:
    """The shardings in which parameters are updated, which are those of the optimizer's moments."""
    moments = optax.tree.get(abstract.opt_state, "mu", abstract.params)
    return jax.tree.map(lambda leaf: leaf.sharding, moments)


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

    def make(seed):
        params = nn.unbox(init(jax.random.key(seed)))
        return TrainState(jnp.int32(0), params, optimizer.init(params))

    return jax.jit(make, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, abstract))
