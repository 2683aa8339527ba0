"""Cross-entropy."""

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]: logits [..., V] float32, labels int [...] -> [...]."""
    return jax.nn.logsumexp(logits, -1) - label_logit(logits, labels)


def label_logit(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """A masked sum finds the logit: unlike a look-up it shards along V, and its gradient fuses."""
    one_hot = labels[..., None] == jnp.arange(logits.shape[-1])
    return jnp.where(one_hot, logits, 0.0).sum(-1)
