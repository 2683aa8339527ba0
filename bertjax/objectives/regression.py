"""A number for each sequence (section 4.1)."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, Field
from bertjax.models.encoders import kinds
from bertjax.objectives.fine_tuning import IS_REAL, TaskObjective
from bertjax.training.model import Arrays


@dataclasses.dataclass(frozen=True)
class RegressionObjective(TaskObjective):
    """The loss is the squared error.

    Attributes:
      soft_share: the share of the squared distance from the soft labels, the numbers that a teacher
        gave each sequence.
    """

    soft_share: float = 0.0

    name = "regression"
    kind = kinds.SEQUENCE_CLASSIFICATION

    @property
    def fields(self) -> Mapping[str, Field]:
        soft = {"soft_labels": Field("B", "float32")} if self.soft_share else {}
        return {**TEXT, **IS_REAL, "targets": Field("B", "float32"), **soft}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "logits" [B, 1] with the targets."""
        found = outputs["logits"][:, 0]
        error = jnp.square(found - batch["targets"])
        if self.soft_share:
            soft = jnp.square(found - batch["soft_labels"])
            error = (1 - self.soft_share) * error + self.soft_share * soft
        return {"task_loss": {"task_loss": error}}


REGRESSION = RegressionObjective()
