"""A task beside a penalty on some parameters, such as those of a learned mix of layers."""

import dataclasses
from collections.abc import Mapping

import jax

from bertjax.base.fields import Field
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights, Objective


@dataclasses.dataclass(frozen=True)
class WithPenalty(Objective):
    """The loss of the task, and `weight` times "penalty", an output that each example repeats.

    Its mean is the penalty, however a batch is divided.
    """

    task: TaskObjective
    weight: float

    name = "with_penalty"

    @property
    def fields(self) -> Mapping[str, Field]:
        """Those of the task."""
        return self.task.fields

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**self.task.loss_weights, "penalty": self.weight}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Adds 1 on each example."""
        return {**self.task.weights(batch), "penalty": batch["is_real_example"]}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Adds the penalty [B]."""
        penalty = {"penalty": outputs["penalty"]}
        return {**self.task.values(outputs, batch), "penalty": penalty}
