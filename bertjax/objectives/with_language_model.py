"""A task with language modelling beside it (GPT, Radford et al., 2018, section 3.2)."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bertjax.base.fields import Field
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights, Objective


@dataclasses.dataclass(frozen=True)
class WithLanguageModel(Objective):
    """The loss of a task, plus the weighted loss of the next tokens of its texts.

    The loss of a text is the mean over its tokens but the first, and counts as that of any other
    text, as in openai/finetune-transformer-lm (train.py).

    Attributes:
      task: the objective of the task.
      lm_weight: the weight of "lm_loss"; GPT's is 0.5.
    """

    task: TaskObjective
    lm_weight: float

    name = "with_language_model"

    @property
    def fields(self) -> Mapping[str, Field]:
        """Those of the task."""
        return self.task.fields

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """Adds that of the next tokens."""
        return {**self.task.loss_weights, "lm_loss": self.lm_weight}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Adds those of the next tokens, which sum to 1 in each text with at least two."""
        follows = batch["input_mask"][..., 1:].astype(jnp.float32)  # padding is after texts
        follows /= jnp.maximum(follows.sum(-1, keepdims=True), 1)
        real = batch["is_real_example"]
        follows *= real.reshape(-1, *[1] * (follows.ndim - 1))
        return self.task.weights(batch) | {"lm_loss": follows}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "next" [..., S, V] with the tokens [..., S] after each place."""
        losses = cross_entropy(outputs["next"][..., :-1, :], batch["input_ids"][..., 1:])
        return self.task.values(outputs, batch) | {"lm_loss": {"lm_loss": losses}}
