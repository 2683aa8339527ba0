"""Answers that are spans of the text (sections 4.2 and 4.3)."""

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, Field
from bertjax.models.encoders import kinds
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.fine_tuning import IS_REAL, TaskObjective
from bertjax.training.model import Arrays


class SpanObjective(TaskObjective):
    """The mean of the losses of start and end (run_squad.py), over the tokens without padding."""

    name = "question_answering"
    kind = kinds.QUESTION_ANSWERING
    fields = {
        **TEXT,
        **IS_REAL,
        "start_positions": Field("B", "int32"),  # both 0, [CLS], where there is no answer
        "end_positions": Field("B", "int32"),
    }
    of_tokens = True
    has_classes = False

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "start" and "end" [B, S] with the answer's positions."""
        losses, correct = [], []
        for side in ("start", "end"):
            logits = jnp.where(batch["input_mask"] > 0, outputs[side], jnp.finfo(jnp.float32).min)
            positions = batch[f"{side}_positions"]
            losses.append(cross_entropy(logits, positions))
            correct.append(logits.argmax(-1) == positions)
        return {
            "task_loss": {
                "task_loss": (losses[0] + losses[1]) / 2,
                "accuracy": (correct[0] & correct[1]).astype(jnp.float32),
            }
        }


QUESTION_ANSWERING = SpanObjective()
