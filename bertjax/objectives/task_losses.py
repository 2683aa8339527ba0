"""The losses of tasks: a function and a row for each (section 4)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.base.fields import TEXT, TEXT_NUMBERS, WORD_MASK, Field
from bertjax.models.encoders import head_types
from bertjax.objectives.cross_entropy import cross_entropy, divergence
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights

_LEAST = 1e-30  # replaces a probability that was rounded to 0


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of `bertjax.tasks.task.Task.objective_settings`; a loss uses those that it can.

    Attributes:
      class_weights: how much each of C classes counts; (): all count the same. The loss of classes
        is then that of `torch.nn.CrossEntropyLoss(weight=class_weights)`: the mean over the
        examples, each with the weight of its class. So is the accuracy. The loss of several labels
        is that of `torch.nn.BCEWithLogitsLoss(pos_weight=class_weights)`: a class's weight counts
        where the class is a label.
      focal_gamma: the focal loss (Lin et al. 2017, arXiv 1708.02002, equation 4) multiplies each
        cross-entropy by (1 - p)^focal_gamma, where p is the probability of the right answer. 0:
        the cross-entropy itself.
      soft_share: the share of the soft labels in the loss, which a teacher gave each sequence
        (arXiv 1503.02531, section 2): probabilities of the classes, or a number. The true labels
        have the rest.
      temperature: of the divergence from soft labels of classes.
    """

    class_weights: tuple[float, ...] = ()
    focal_gamma: float = 0.0
    soft_share: float = 0.0
    temperature: float = 1.0

    def focal(self, losses: jax.Array) -> jax.Array:
        """The focal losses of cross-entropies, which are -log p."""
        if not self.focal_gamma:
            return losses
        wrong = jnp.maximum(-jnp.expm1(-losses), jnp.finfo(losses.dtype).tiny)  # 1 - p
        return wrong**self.focal_gamma * losses

    def mixed(self, losses: jax.Array, soft: jax.Array) -> jax.Array:
        """The losses of true labels and of soft labels, by their shares."""
        return (1 - self.soft_share) * losses + self.soft_share * soft


# These are the values and weights of `bertjax.training.objective.Objective`.
Losses = dict[str, dict[str, jax.Array]]
Weights = dict[str, LossWeights]


def _compared(losses: jax.Array, right: jax.Array) -> Losses:
    return {"task_loss": {"task_loss": losses, "accuracy": right.astype(jnp.float32)}}


def _each_example(batch: Arrays, _: Settings) -> Weights:
    return {"task_loss": batch["is_real_example"]}


def _classes(outputs: Arrays, batch: Arrays, settings: Settings) -> Losses:
    """Compares "logits" [B, C] with the labels; they are [B, S, C] if tokens are classified."""
    logits, labels = outputs["logits"], batch["label_ids"]
    losses = settings.focal(cross_entropy(logits, labels))
    if settings.soft_share:
        teacher = jnp.log(jnp.maximum(batch["soft_labels"], _LEAST))
        losses = settings.mixed(losses, divergence(logits, teacher, settings.temperature))
    return _compared(losses, logits.argmax(-1) == labels)


def _class_weights(batch: Arrays, settings: Settings) -> Weights:
    """The weight of the class of each example, or of each token that is classified."""
    real, labels = batch["is_real_example"], batch["label_ids"]
    counted = real.reshape(-1, *[1] * (labels.ndim - 1)) * (labels >= 0)
    if settings.class_weights:
        counted *= jnp.array(settings.class_weights)[labels]
    return {"task_loss": counted}


def _labels(outputs: Arrays, batch: Arrays, settings: Settings) -> Losses:
    """The mean of the binary cross-entropies of "logits" [B, C]; all must be right in an answer."""
    logits, is_label = outputs["logits"], batch["targets"] > 0
    losses = settings.focal(jax.nn.softplus(jnp.where(is_label, -logits, logits)))
    if settings.class_weights:
        losses *= jnp.where(is_label, jnp.array(settings.class_weights), 1.0)
    return _compared(losses.mean(-1), ((logits > 0) == is_label).all(-1))


def _numbers(outputs: Arrays, batch: Arrays, settings: Settings) -> Losses:
    """The squared distance of "logits" [B, 1] from the targets."""
    found = outputs["logits"][:, 0]
    losses = jnp.square(found - batch["targets"])
    if settings.soft_share:
        losses = settings.mixed(losses, jnp.square(found - batch["soft_labels"]))
    return {"task_loss": {"task_loss": losses}}


def _tag_paths(outputs: Arrays, batch: Arrays, _: Settings) -> Losses:
    """-"log_likelihood" [B] of the path of tags; "path" [B, S], the best one, has right words."""
    right = (outputs["path"] == batch["label_ids"]).astype(jnp.float32)
    return {"task_loss": {"task_loss": -outputs["log_likelihood"]}, "words": {"accuracy": right}}


def _paths_and_words(batch: Arrays, _: Settings) -> Weights:
    """1 on each sequence; and 1 on each word, for the accuracy."""
    real = batch["is_real_example"]
    return {"task_loss": real, "words": real[:, None] * (batch["label_ids"] >= 0)}


def _spans(outputs: Arrays, batch: Arrays, _: Settings) -> Losses:
    """The mean of the losses of "start" and "end" [B, S] (run_squad.py); padding is no answer."""
    losses, correct = [], []
    for side in ("start", "end"):
        logits = jnp.where(batch["input_mask"] > 0, outputs[side], jnp.finfo(jnp.float32).min)
        positions = batch[f"{side}_positions"]
        losses.append(cross_entropy(logits, positions))
        correct.append(logits.argmax(-1) == positions)
    return _compared((losses[0] + losses[1]) / 2, correct[0] & correct[1])


def _next_tokens(outputs: Arrays, batch: Arrays, _: Settings) -> Losses:
    """Compares "next" [..., S, V] with the tokens [..., S] after each place."""
    losses = cross_entropy(outputs["next"][..., :-1, :], batch["input_ids"][..., 1:])
    return {"lm_loss": {"lm_loss": losses}}


def _tokens_of_texts(batch: Arrays, _: Settings) -> Weights:
    """Weights that sum to 1 over the next tokens of each text with at least two."""
    follows = batch["input_mask"][..., 1:].astype(jnp.float32)  # padding is after texts
    follows /= jnp.maximum(follows.sum(-1, keepdims=True), 1)
    real = batch["is_real_example"]
    follows *= real.reshape(-1, *[1] * (follows.ndim - 1))
    return {"lm_loss": follows}


def _penalty(outputs: Arrays, batch: Arrays, _: Settings) -> Losses:
    """An output that each example repeats: its mean is the same, however a batch is divided."""
    return {"penalty": {"penalty": outputs["penalty"]}}


def _penalized(batch: Arrays, _: Settings) -> Weights:
    return {"penalty": batch["is_real_example"]}


class Loss(NamedTuple):
    """Losses and metrics of outputs and a batch; and from the batch alone, what each one counts."""

    values: Callable[[Arrays, Arrays, Settings], Losses]
    weights: Callable[[Arrays, Settings], Weights]


class TaskLoss(NamedTuple):
    """The loss of a task, "task_loss", and its metric "accuracy" where there is one.

    Attributes:
      head_type: the model that learns it: one of `bertjax.models.encoders.head_types`.
      fields: the arrays of a batch.
      loss: its values and weights.
      soft: the soft labels that it can also learn from.
      of_tokens: whether the outputs have a place for each token of a sequence.
      has_classes: whether the output layer has a row for each class.
      needs_full_batch: see `bertjax.training.objective.Objective`.
    """

    head_type: str
    loss: Loss
    fields: Mapping[str, Field]
    soft: Mapping[str, Field] = {}
    of_tokens: bool = False
    has_classes: bool = True
    needs_full_batch: bool = False


_CLASSES = Loss(_classes, _class_weights)
IS_REAL = {"is_real_example": Field("B", "float32")}  # 0 on rows that fill up a batch
_TEXT = {**TEXT, **IS_REAL}
_TEXTS = {**{name: Field("BCS", "int32") for name in TEXT}, **IS_REAL}
_CLASS = {"label_ids": Field("B", "int32")}
_TAGS = {"label_ids": Field("BS", "int32")}  # -1 on tokens that are not classified
_SIDES = ("start_positions", "end_positions")  # both 0, [CLS], where there is no answer
_SOFT = {"soft_labels": Field("BC", "float32")}

# `Family.objective` of fine-tuning (`bertjax.tasks.task`).
TASK_LOSSES = {
    "sequence_classification": TaskLoss(
        head_types.SEQUENCE_CLASSIFICATION, _CLASSES, {**_TEXT, **_CLASS}, _SOFT
    ),
    "answer_network": TaskLoss(
        head_types.ANSWER_NETWORK, _CLASSES, {**_TEXT, **_CLASS, **TEXT_NUMBERS}, _SOFT
    ),
    "multi_label_classification": TaskLoss(
        head_types.SEQUENCE_CLASSIFICATION,
        Loss(_labels, _each_example),
        {**_TEXT, "targets": Field("BC", "float32")},  # 1 on labels, 0 elsewhere
    ),
    "regression": TaskLoss(
        head_types.SEQUENCE_CLASSIFICATION,
        Loss(_numbers, _each_example),
        {**_TEXT, "targets": Field("B", "float32")},
        {"soft_labels": Field("B", "float32")},
    ),
    "multiple_choice": TaskLoss(head_types.MULTIPLE_CHOICE, _CLASSES, {**_TEXTS, **_CLASS}),
    "token_classification": TaskLoss(
        head_types.TOKEN_CLASSIFICATION, _CLASSES, {**_TEXT, **_TAGS}, of_tokens=True
    ),
    "tag_sequence": TaskLoss(
        head_types.TAG_SEQUENCE,
        Loss(_tag_paths, _paths_and_words),
        {**_TEXT, **_TAGS, **WORD_MASK},
        of_tokens=True,
    ),
    "question_answering": TaskLoss(
        head_types.QUESTION_ANSWERING,
        Loss(_spans, _each_example),
        {**_TEXT, **dict.fromkeys(_SIDES, Field("B", "int32"))},
        of_tokens=True,
        has_classes=False,
    ),
}

# Losses next to those of a task: of the next tokens of its texts, as in
# openai/finetune-transformer-lm (train.py); and what the model itself gives, such as the penalty
# on a learned mix of layers.
ADDED_LOSSES = {
    "lm_loss": Loss(_next_tokens, _tokens_of_texts),
    "penalty": Loss(_penalty, _penalized),
}
