"""Objectives of classification: of sequences, tokens and choices (sections 4.1, 4.4 and 5.3)."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, TEXT_NUMBERS, WORD_MASK, Field
from bertjax.models.encoders import kinds
from bertjax.objectives.cross_entropy import cross_entropy, divergence
from bertjax.objectives.fine_tuning import IS_REAL, TaskObjective, WeightedObjective
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights

_LEAST = 1e-30  # replaces a probability that was rounded to 0


@dataclasses.dataclass(frozen=True)
class ClassificationObjective(WeightedObjective):
    """A class for each sequence.

    With `class_weights`, the loss is that of `torch.nn.CrossEntropyLoss(weight=class_weights)`: the
    mean over the examples, each with the weight of its class. So is the accuracy.

    Attributes:
      soft_share: the share of the soft labels in the loss, probabilities of the classes that a
        teacher gave each sequence (arXiv 1503.02531, section 2); the true labels have the rest.
      temperature: of the divergence from the soft labels.
    """

    soft_share: float = 0.0
    temperature: float = 1.0

    name = "sequence_classification"
    kind = kinds.SEQUENCE_CLASSIFICATION

    @property
    def fields(self) -> Mapping[str, Field]:
        soft = {"soft_labels": Field("BC", "float32")} if self.soft_share else {}
        return {**TEXT, **IS_REAL, "label_ids": Field("B", "int32"), **soft}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "logits" [B, C] with the labels; they are [B, S, C] if tokens are classified."""
        logits, labels = outputs["logits"], batch["label_ids"]
        loss = self.focal(cross_entropy(logits, labels))
        if self.soft_share:
            teacher = jnp.log(jnp.maximum(batch["soft_labels"], _LEAST))
            soft = divergence(logits, teacher, self.temperature)
            loss = (1 - self.soft_share) * loss + self.soft_share * soft
        return {
            "task_loss": {
                "task_loss": loss,
                "accuracy": (logits.argmax(-1) == labels).astype(jnp.float32),
            }
        }

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """The weight of the class of each example, or of each token that is classified."""
        real, labels = batch["is_real_example"], batch["label_ids"]
        counted = real.reshape(-1, *[1] * (labels.ndim - 1)) * (labels >= 0)
        if self.class_weights:
            counted *= jnp.array(self.class_weights)[labels]
        return {"task_loss": counted}


class AnswerObjective(ClassificationObjective):
    """A class for each pair of texts, by an answer network."""

    name = "answer_network"
    kind = kinds.ANSWER_NETWORK

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**super().fields, **TEXT_NUMBERS}


class ChoiceObjective(ClassificationObjective):
    """One of C sequences; "logits" [B, C] are their scores."""

    name = "multiple_choice"
    kind = kinds.MULTIPLE_CHOICE
    fields = {
        **{name: Field("BCS", "int32") for name in TEXT},
        **IS_REAL,
        "label_ids": Field("B", "int32"),
    }


class TaggingObjective(ClassificationObjective):
    """A class for some tokens of each sequence."""

    name = "token_classification"
    kind = kinds.TOKEN_CLASSIFICATION
    fields = {
        **TEXT,
        **IS_REAL,
        "label_ids": Field("BS", "int32"),  # -1 on tokens that are not classified
    }
    of_tokens = True


@dataclasses.dataclass(frozen=True)
class TagSequenceObjective(TaskObjective):
    """A path of classes for the words of each sequence: the loss is -log of its probability."""

    name = "tag_sequence"
    kind = kinds.TAG_SEQUENCE
    fields = {**TaggingObjective.fields, **WORD_MASK}
    of_tokens = True

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Takes "log_likelihood" [B] for the loss, and compares "path" [B, S] with the labels."""
        right = (outputs["path"] == batch["label_ids"]).astype(jnp.float32)
        return {
            "task_loss": {"task_loss": -outputs["log_likelihood"]},
            "words": {"accuracy": right},
        }

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """1 on each sequence; and 1 on each word, for the accuracy."""
        real = batch["is_real_example"]
        return {"task_loss": real, "words": real[:, None] * (batch["label_ids"] >= 0)}


SEQUENCE_CLASSIFICATION = ClassificationObjective()
ANSWER_NETWORK = AnswerObjective()
MULTIPLE_CHOICE = ChoiceObjective()
TOKEN_CLASSIFICATION = TaggingObjective()
TAG_SEQUENCE = TagSequenceObjective()
