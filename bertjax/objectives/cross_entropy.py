"""Cross-entropy, entropy, and the divergence of two distributions."""

import jax
import jax.numpy as jnp
import numpy as np


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label]: logits [..., V] float32, labels int [...] -> [...]."""
    return jax.nn.logsumexp(logits, -1) - label_logit(logits, labels)


def label_logit(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """A masked sum finds the logit: unlike a look-up it shards along V, and its gradient fuses."""
    one_hot = labels[..., None] == jnp.arange(logits.shape[-1])
    return jnp.where(one_hot, logits, 0.0).sum(-1)


def entropy(shares: np.ndarray) -> float:
    """The entropy in nats of shares [V] that sum to 1."""
    return float(-(shares * np.log(np.where(shares > 0, shares, 1.0))).sum())


def divergence(
    student: jax.Array,
    teacher: jax.Array,
    temperature: float,
    counted: jax.Array | None = None,
) -> jax.Array:
    """Nats [...]: the KL divergence of softmax(student / T) from softmax(teacher / T), times T^2.

    So scaled, its gradient is as large at every temperature (arXiv 1503.02531, section 2). Student
    and teacher are logits [..., V or more]; only those of `counted`, bool [V], are compared.
    """
    if counted is None:
        counted = jnp.ones(student.shape[-1], bool)

    def log_softmax(logits: jax.Array) -> jax.Array:
        some = jnp.where(counted, logits[..., : len(counted)], -jnp.inf)
        return jax.nn.log_softmax(some / temperature)

    log_student, log_teacher = log_softmax(student), log_softmax(teacher)
    terms = jnp.exp(log_teacher) * jnp.where(counted, log_teacher - log_student, 0.0)
    return temperature**2 * terms.sum(-1)
