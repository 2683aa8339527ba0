"""The objective of fine-tuning: one task or several, and weighted losses next to theirs."""

import dataclasses
from collections.abc import Mapping

import jax

from bertjax.base.fields import Field
from bertjax.objectives.task_losses import ADDED_LOSSES, TASK_LOSSES, Settings, TaskLoss
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.objective import LossWeights, Objective, Rngs


def array_name(task: str, name: str) -> str:
    """The name of an array in a batch of a task: "TASK/NAME", or "NAME" if the task is ""."""
    return f"{task}/{name}" if task else name


@dataclasses.dataclass(frozen=True)
class TaskObjective(Objective):
    """The loss of a task; `name` is a key of `bertjax.objectives.task_losses.TASK_LOSSES`."""

    name: str
    settings: Settings = Settings()

    loss_weights = {"task_loss": 1.0}

    @property
    def row(self) -> TaskLoss:
        """Its row in the table."""
        return TASK_LOSSES[self.name]

    @property
    def fields(self) -> Mapping[str, Field]:
        """Also the soft labels, if they have a share."""
        return {**self.row.fields, **(self.row.soft if self.settings.soft_share else {})}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Those of its row."""
        return self.row.loss.weights(batch, self.settings)

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Those of its row."""
        return self.row.loss.values(outputs, batch, self.settings)


@dataclasses.dataclass(frozen=True)
class FineTuning(Objective):
    """The loss of the task of a batch, and weighted losses next to it.

    Each batch is of one task (MT-DNN, arXiv 1901.11504, section 3), and so is the part of the model
    that computes it. With several, all arrays of a batch, and the metrics, have the name of its
    task, so that it is known when a program is compiled. The output layers of the other tasks have
    a gradient of 0 in that update.

    Attributes:
      tasks: the name of a task, without "/" -> what is learned from it; a single one is "".
      added: a name of `bertjax.objectives.task_losses.ADDED_LOSSES` -> the weight of that loss;
        GPT's is 0.5 of "lm_loss" (Radford et al., 2018, section 3.2).
    """

    tasks: Mapping[str, TaskObjective]
    added: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays of the batches of every task."""
        return {
            array_name(task, name): field
            for task, objective in self.tasks.items()
            for name, field in objective.fields.items()
        }

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"task_loss": 1.0, **self.added}

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The outputs of the task's part of the model."""
        task, arrays = self._opened(batch)
        return model(params, arrays, rngs.dropout(), task)

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Those of the batch's task, and of the losses next to it."""
        task, arrays = self._opened(batch)
        weights = self.tasks[task].weights(arrays)
        for name in self.added:
            weights |= ADDED_LOSSES[name].weights(arrays, self.tasks[task].settings)
        return weights

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """The loss of one of several tasks is there once for all, and once with its name."""
        task, arrays = self._opened(batch)
        values = self.tasks[task].values(outputs, arrays)
        if task:
            named = values["task_loss"]
            of_task = {array_name(task, name): value for name, value in named.items()}
            values = {"task_loss": {"task_loss": named["task_loss"], **of_task}}
        for name in self.added:
            values |= ADDED_LOSSES[name].values(outputs, arrays, self.tasks[task].settings)
        return values

    def _opened(self, batch: Arrays) -> tuple[str, Arrays]:
        if "" in self.tasks:
            return "", batch
        (task,) = {name.partition("/")[0] for name in batch}
        return task, {name.partition("/")[2]: array for name, array in batch.items()}
