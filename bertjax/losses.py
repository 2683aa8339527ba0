"""(logits, batch) -> {name: (sum, count)}: never a mean.

Sums and counts add over micro-batches, devices and hosts, and are divided once.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bertjax import batch as batches

Sums = dict[str, tuple[jax.Array, jax.Array]]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]: logits [..., V] float32, labels int [...] -> [...]."""
    return jax.nn.logsumexp(logits, -1) - _label_logit(logits, labels)


def _label_logit(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """By a masked sum: unlike a look-up it shards along V, and its gradient fuses."""
    one_hot = labels[..., None] == jnp.arange(logits.shape[-1])
    return jnp.where(one_hot, logits, 0.0).sum(-1)


def _token_sums(logits, labels, weights) -> Sums:
    loss = _cross_entropy(logits, labels)
    correct = _label_logit(logits, labels) == logits.max(-1)
    count = weights.sum()
    return {
        "mlm_loss": ((loss * weights).sum(), count),
        "mlm_accuracy": ((correct * weights).sum(), count),
    }


def pretraining_sums(logits: dict[str, jax.Array], batch: dict[str, jax.Array]) -> Sums:
    """Sums and counts of every loss and accuracy that the batch has labels for.

    Args:
      logits: of `bertjax.heads.pretraining.PreTrainingModel`.
      batch: the arrays of one of `bertjax.batch.FIELDS`.

    Returns:
      "mlm_loss" (nats), "mlm_accuracy", and with next-sentence labels "nsp_loss",
      "nsp_accuracy" and "nsp_random_answers" (that B is random): each (sum, count), float32
      scalars.
    """
    if "target_ids" in batch:
        return _token_sums(logits["masked_lm"], batch["target_ids"], batch["target_weights"])
    sums = _token_sums(logits["masked_lm"], batch["masked_lm_ids"], batch["masked_lm_weights"])
    if "next_sentence_labels" in batch:
        labels = batch["next_sentence_labels"]
        loss = _cross_entropy(logits["next_sentence"], labels)
        answers = logits["next_sentence"].argmax(-1)
        count = jnp.float32(labels.size)
        sums["nsp_loss"] = (loss.sum(), count)
        sums["nsp_accuracy"] = ((answers == labels).astype(jnp.float32).sum(), count)
        sums["nsp_random_answers"] = (answers.astype(jnp.float32).sum(), count)
    return sums


def loss_counts(batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The count that divides each loss, from the batch alone: {loss name: count}.

    Known before the forward pass, so that each micro-batch can be weighted by the whole
    batch's counts. The training loss is the sum of the means of these losses (section A.2).
    """
    if "target_weights" in batch:
        return {"mlm_loss": batch["target_weights"].sum()}
    counts = {"mlm_loss": batch["masked_lm_weights"].sum()}
    if "next_sentence_labels" in batch:
        counts["nsp_loss"] = jnp.float32(batch["next_sentence_labels"].size)
    return counts


def uses_next_sentence(objective: str) -> bool:
    """Whether an objective of `bertjax.batch` has the next-sentence task."""
    return "next_sentence_labels" in batches.FIELDS[objective]


# ------------------------------------------------------------------- fine-tuning (section 4)

Outputs = dict[str, jax.Array]
Batch = dict[str, jax.Array]


def _weighted(values: dict[str, jax.Array], weights: jax.Array) -> Sums:
    count = weights.sum()
    return {name: ((value * weights).sum(), count) for name, value in values.items()}


def _classification_sums(outputs: Outputs, batch: Batch) -> Sums:
    """Of sequences, [B, C], or of tokens, [B, S, C]; or of choices, [B, C]."""
    logits, labels = outputs["logits"], batch["label_ids"]
    values = {
        "task_loss": _cross_entropy(logits, labels),
        "accuracy": (logits.argmax(-1) == labels).astype(jnp.float32),
    }
    return _weighted(values, _label_weights(batch))


def _label_weights(batch: Batch) -> jax.Array:
    """1 on what is classified: [B], or [B, S] where tokens are."""
    labels, real = batch["label_ids"], batch["is_real_example"]
    return real if labels.ndim == 1 else real[:, None] * (labels >= 0)


def _regression_sums(outputs: Outputs, batch: Batch) -> Sums:
    error = jnp.square(outputs["logits"][:, 0] - batch["targets"])
    return _weighted({"task_loss": error}, batch["is_real_example"])


def _span_sums(outputs: Outputs, batch: Batch) -> Sums:
    """The mean of the losses of start and end (run_squad.py), over the S tokens without padding."""
    losses, correct = [], []
    for side in ("start", "end"):
        logits = jnp.where(batch["input_mask"] > 0, outputs[side], jnp.finfo(jnp.float32).min)
        positions = batch[f"{side}_positions"]
        losses.append(_cross_entropy(logits, positions))
        correct.append(logits.argmax(-1) == positions)
    values = {
        "task_loss": (losses[0] + losses[1]) / 2,
        "accuracy": (correct[0] & correct[1]).astype(jnp.float32),
    }
    return _weighted(values, batch["is_real_example"])


_TASK_SUMS: dict[str, Callable[[Outputs, Batch], Sums]] = {
    batches.SEQUENCE_CLASSIFICATION: _classification_sums,
    batches.MULTIPLE_CHOICE: _classification_sums,
    batches.TOKEN_CLASSIFICATION: _classification_sums,
    batches.REGRESSION: _regression_sums,
    batches.QUESTION_ANSWERING: _span_sums,
}


def task_sums(objective: str, outputs: Outputs, batch: Batch) -> Sums:
    """Sums and counts of the loss and the accuracy of a fine-tuning batch.

    Args:
      objective: a key of `bertjax.batch.TASK_FIELDS`; `batch` has its arrays.
      outputs: of the model that goes with it (`bertjax.heads.tasks`).

    Returns:
      "task_loss" (nats; squared error of a regression) and "accuracy" (not of a regression): each
      (sum, count), float32 scalars.
    """
    return _TASK_SUMS[objective](outputs, batch)


def task_counts(objective: str, batch: Batch) -> dict[str, jax.Array]:
    """The count that divides "task_loss", as `loss_counts`."""
    tokens = objective == batches.TOKEN_CLASSIFICATION
    return {"task_loss": (_label_weights(batch) if tokens else batch["is_real_example"]).sum()}
