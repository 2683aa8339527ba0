"""A number for each sequence (section 4.1)."""

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, Field
from bertjax.encoders import kinds
from bertjax.objectives.fine_tuning import IS_REAL, TaskObjective
from bertjax.training.model import Arrays


class RegressionObjective(TaskObjective):
    """The loss is the squared error."""

    name = "regression"
    kind = kinds.SEQUENCE_CLASSIFICATION
    fields = {**TEXT, **IS_REAL, "targets": Field("B", "float32")}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "logits" [B, 1] with the targets."""
        error = jnp.square(outputs["logits"][:, 0] - batch["targets"])
        return {"task_loss": {"task_loss": error}}


REGRESSION = RegressionObjective()
