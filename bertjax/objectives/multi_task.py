"""Several tasks over one encoder, each batch of one task (MT-DNN, arXiv 1901.11504, section 3)."""

import dataclasses
from collections.abc import Mapping

import jax

from bertjax.base.fields import Field
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.objective import LossWeights, Objective, Rngs


def array_name(task: str, name: str) -> str:
    """The name of an array in a batch of a task: "TASK/NAME", or "NAME" if the task is ""."""
    return f"{task}/{name}" if task else name


@dataclasses.dataclass(frozen=True, eq=False)
class MultiTask(Objective):
    """The loss of a batch is that of its task, and so is the part of the model that computes it.

    All arrays of a batch, and the metrics, have the name of its task, so that it is known when a
    program is compiled. The output layers of the other tasks have a gradient of 0 in that update.

    Attributes:
      tasks: the name of a task, without "/" -> what is learned from it.
    """

    tasks: Mapping[str, TaskObjective]

    name = "multi_task"
    loss_weights = {"task_loss": 1.0}

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays of the batches of every task."""
        return {
            array_name(task, name): field
            for task, objective in self.tasks.items()
            for name, field in objective.fields.items()
        }

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The outputs of the task's part of the model."""
        task, own = _opened(batch)
        return model(params, own, rngs.dropout(), task)

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Those of the batch's task."""
        task, own = _opened(batch)
        return self.tasks[task].weights(own)

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """The loss of the batch's task, once for all tasks and once with its name."""
        task, own = _opened(batch)
        named = self.tasks[task].values(outputs, own)["task_loss"]
        of_task = {array_name(task, name): value for name, value in named.items()}
        return {"task_loss": {"task_loss": named["task_loss"], **of_task}}


def _opened(batch: Arrays) -> tuple[str, Arrays]:
    """The task of a batch, and the batch's arrays by the names that the task knows."""
    (task,) = {name.partition("/")[0] for name in batch}
    return task, {name.partition("/")[2]: array for name, array in batch.items()}
