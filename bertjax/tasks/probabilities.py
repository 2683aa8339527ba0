"""Probabilities over classes, of one model and of several models together."""

import numpy as np

# How several models are combined: see `combined`.
PROBABILITIES, LOGITS, VOTES = BY = ("probabilities", "logits", "votes")

_LEAST = np.finfo(np.float64).tiny  # replaces a probability that was rounded to 0


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, as float64."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """The probability of "yes" for each logit, as float64."""
    return softmax(np.stack([np.zeros_like(logits), logits], axis=-1))[..., 1]


def logarithm(probabilities: np.ndarray) -> np.ndarray:
    """The natural logarithm, which is finite for 0 too."""
    return np.log(np.maximum(probabilities, _LEAST))


def combined(members: np.ndarray, by: str) -> np.ndarray:
    """The probabilities of several models together, float64 [..., C].

    Args:
      members: float64 [K, ..., C], the probabilities of each of K models.
      by: `PROBABILITIES` for their mean; `LOGITS` for the softmax of the mean logits, for which the
        logarithms of the probabilities are taken (they differ by a constant); `VOTES` for shares of
        K + 1 votes. Each model gives its likeliest class one vote. The last vote is divided like
        the mean of the probabilities, so it decides only between classes with equally many votes.
    """
    if by == LOGITS:
        return softmax(logarithm(members).mean(0))
    mean = members.mean(0)
    if by == PROBABILITIES:
        return mean
    votes = np.eye(members.shape[-1])[members.argmax(-1)]
    return (votes.sum(0) + mean) / (len(members) + 1)
