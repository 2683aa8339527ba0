"""The experiment: everything that a compiled step depends on."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from bertjax.training.model import Model, Params
from bertjax.training.objective import Objective
from bertjax.training.sharding.placement import Placement
from bertjax.training.state import Average, TrainState, sharded, sharded_for_use


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A model, its objective and how it is trained; nothing is computed yet.

    Attributes:
      optimizer: its updates take `learning_rate`.
      ema: the decay of the average of the parameters; 0 means no average.
      rows: the rows of a batch; only an objective that carries arrays needs them.
      frozen: the parameters that are not trained, on the devices; {} if nothing is computed.
    """

    model: Model
    objective: Objective
    optimizer: optax.GradientTransformationExtraArgs
    placement: Placement
    ema: float = 0.0
    rows: int = 0
    frozen: Mapping[str, Params] = dataclasses.field(default_factory=dict)

    @cached_property
    def abstract_params(self) -> Any:
        """The trained parameters as shapes and dtypes, each with its logical axes."""
        return jax.eval_shape(self.model.init, jax.random.key(0))

    @cached_property
    def abstract_frozen(self) -> Any:
        """The shapes, dtypes and shardings of the parameters that are not trained."""
        init = partial(self.model.init, frozen=True)
        return sharded(jax.eval_shape(init, jax.random.key(0)), self.placement)

    @cached_property
    def used(self) -> Any:
        """The shapes, dtypes and shardings in which a step computes with the parameters."""
        return sharded_for_use(self.abstract_params, self.placement)

    @cached_property
    def state(self) -> TrainState:
        """The shapes, dtypes and shardings of the state."""
        boxed = jax.eval_shape(partial(self._make, self.model.init), jax.random.key(0))
        return sharded(boxed, self.placement, stored=True).replace(
            carry={
                name: jax.ShapeDtypeStruct(
                    (self.rows, *each.shape), each.dtype, sharding=self.placement.batch
                )
                for name, each in self.objective.carried(self.model).items()
            }
        )

    def _make(self, init: Callable[[jax.Array], Params], key: jax.Array) -> TrainState:
        params = init(key)
        average = Average(params, self.ema) if self.ema else None
        return TrainState(jnp.int32(0), params, self.optimizer.init(params), average)

    @cached_property
    def initial_state(self) -> Callable[[int], TrainState]:
        """A compiled function: seed -> the state at step 0, on its devices; equal on any mesh."""

        def make(seed: jax.Array) -> TrainState:
            state = self._make(lambda key: nn.unbox(self.model.init(key)), jax.random.key(seed))
            carry = {name: jnp.zeros(x.shape, x.dtype) for name, x in self.state.carry.items()}
            return state.replace(carry=carry)

        return jax.jit(make, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, self.state))
