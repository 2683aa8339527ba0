"""Cross-entropy, and what the objectives that predict tokens report of it."""

import math

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]: logits [..., V] float32, labels int [...] -> [...]."""
    return jax.nn.logsumexp(logits, -1) - _label_logit(logits, labels)


def _label_logit(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """A masked sum finds the logit: unlike a look-up it shards along V, and its gradient fuses."""
    one_hot = labels[..., None] == jnp.arange(logits.shape[-1])
    return jnp.where(one_hot, logits, 0.0).sum(-1)


def token_values(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """The loss (nats) and the accuracy of each predicted token."""
    loss = cross_entropy(logits, labels)
    correct = _label_logit(logits, labels) == logits.max(-1)
    return {"mlm_loss": loss, "mlm_accuracy": correct}


def perplexity(loss: float) -> float:
    """exp(loss), finite always: exp(710) would overflow."""
    return math.exp(min(loss, 700.0))
