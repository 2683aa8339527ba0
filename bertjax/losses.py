"""(logits, batch) -> {name: (sum, count)}: never a mean.

Sums and counts add over micro-batches, devices and hosts, and are divided once.
"""

import jax
import jax.numpy as jnp

from bertjax import batch as batches

Sums = dict[str, tuple[jax.Array, jax.Array]]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]: logits [..., V] float32, labels int [...] -> [...]."""
    # The label's logit by a masked sum: unlike a look-up it shards along V, and its gradient
    # fuses into the softmax's.
    one_hot = labels[..., None] == jnp.arange(logits.shape[-1])
    return jax.nn.logsumexp(logits, -1) - jnp.where(one_hot, logits, 0.0).sum(-1)


def _token_sums(logits, labels, weights) -> Sums:
    loss = _cross_entropy(logits, labels)
    # argmax by two plain reductions: XLA:CPU runs its own, over pairs, on one thread.
    vocabulary = logits.shape[-1]
    is_top = logits == logits.max(-1, keepdims=True)
    correct = jnp.where(is_top, jnp.arange(vocabulary), vocabulary).min(-1) == labels
    count = weights.sum()
    return {
        "mlm_loss": ((loss * weights).sum(), count),
        "mlm_accuracy": ((correct * weights).sum(), count),
    }


def pretraining_sums(logits: dict[str, jax.Array], batch: dict[str, jax.Array]) -> Sums:
    """Sums and counts of every loss and accuracy that the batch has labels for.

    Args:
      logits: of `BertForPreTraining`.
      batch: the arrays of one of `bertjax.batch.FIELDS`.

    Returns:
      "mlm_loss" (nats), "mlm_accuracy", and with next-sentence labels "nsp_loss",
      "nsp_accuracy": each (sum, count), float32 scalars.
    """
    if "target_ids" in batch:
        return _token_sums(logits["masked_lm"], batch["target_ids"], batch["target_weights"])
    sums = _token_sums(logits["masked_lm"], batch["masked_lm_ids"], batch["masked_lm_weights"])
    if "next_sentence_labels" in batch:
        labels = batch["next_sentence_labels"]
        loss = _cross_entropy(logits["next_sentence"], labels)
        correct = (logits["next_sentence"].argmax(-1) == labels).astype(jnp.float32)
        count = jnp.float32(labels.size)
        sums["nsp_loss"] = (loss.sum(), count)
        sums["nsp_accuracy"] = (correct.sum(), count)
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
