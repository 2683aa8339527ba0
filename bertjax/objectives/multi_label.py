"""Zero, one or several labels for each sequence."""

import dataclasses

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, Field
from bertjax.models.encoders import kinds
from bertjax.objectives.fine_tuning import IS_REAL, WeightedObjective
from bertjax.training.model import Arrays


@dataclasses.dataclass(frozen=True)
class MultiLabelObjective(WeightedObjective):
    """Yes or no for each class; the loss is the mean of the binary cross-entropies.

    It is that of `torch.nn.BCEWithLogitsLoss(pos_weight=class_weights)`: a class's weight counts
    where the class is a label. An answer is right if it is for all classes.
    """

    name = "multi_label_classification"
    kind = kinds.SEQUENCE_CLASSIFICATION
    fields = {**TEXT, **IS_REAL, "targets": Field("BC", "float32")}  # 1 on labels, 0 elsewhere

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "logits" [B, C] with the targets."""
        logits, is_label = outputs["logits"], batch["targets"] > 0
        losses = self.focal(jax.nn.softplus(jnp.where(is_label, -logits, logits)))
        if self.class_weights:
            losses *= jnp.where(is_label, jnp.array(self.class_weights), 1.0)
        right = ((logits > 0) == is_label).all(-1)
        return {"task_loss": {"task_loss": losses.mean(-1), "accuracy": right.astype(jnp.float32)}}


MULTI_LABEL = MultiLabelObjective()
