"""The base class of the objectives of fine-tuning (section 4)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from bertjax.base.fields import Field
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights, Objective

IS_REAL = {"is_real_example": Field("B", "float32")}  # 0 on rows that fill up a batch


@dataclasses.dataclass(frozen=True)
class TaskObjective(Objective):
    """An objective with the labels of a task; a batch without labels is for prediction.

    Its loss is "task_loss". All but a regression also have the metric "accuracy". Its fields are
    what `bertjax.tasks.task.Task.objective_settings` may set.

    Attributes:
      kind: the model that learns it: one of `bertjax.models.encoders.kinds`.
      of_tokens: whether the outputs have a place for each token of a sequence.
      has_classes: whether the output layer has a row for each class.
    """

    kind: ClassVar[str]
    loss_weights = {"task_loss": 1.0}
    of_tokens: ClassVar[bool] = False
    has_classes: ClassVar[bool] = True

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """1 on each example."""
        return {"task_loss": batch["is_real_example"]}


@dataclasses.dataclass(frozen=True)
class WeightedObjective(TaskObjective):
    """An objective whose losses are the cross-entropies of classes, some of which may be rare.

    Attributes:
      class_weights: how much each of C classes counts; (): all count the same.
      focal_gamma: the focal loss (Lin et al. 2017, arXiv 1708.02002, equation 4) multiplies each
        cross-entropy by (1 - p)^focal_gamma, where p is the probability of the right answer. 0:
        the cross-entropy itself.
    """

    class_weights: tuple[float, ...] = ()
    focal_gamma: float = 0.0

    def focal(self, losses: jax.Array) -> jax.Array:
        """The focal losses of cross-entropies, which are -log p."""
        if not self.focal_gamma:
            return losses
        wrong = jnp.maximum(-jnp.expm1(-losses), jnp.finfo(losses.dtype).tiny)  # 1 - p
        return wrong**self.focal_gamma * losses
