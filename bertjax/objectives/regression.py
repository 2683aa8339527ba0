"""A number for each sequence (section 4.1)."""

import jax.numpy as jnp

from bertjax.base.fields import INPUT, Field
from bertjax.encoders import kinds
from bertjax.objectives.fine_tuning import IS_REAL, TaskObjective


class Regression(TaskObjective):
    """The loss is the squared error."""

    name = "regression"
    kind = kinds.SEQUENCE_CLASSIFICATION
    fields = {**INPUT, **IS_REAL, "targets": Field("B", "float32")}

    def values(self, outputs, batch):
        """Compares "logits" [B, 1] with the targets."""
        error = jnp.square(outputs["logits"][:, 0] - batch["targets"])
        return {"task_loss": {"task_loss": error}}


REGRESSION = Regression()
