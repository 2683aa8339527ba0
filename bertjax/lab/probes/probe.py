"""Structural probes (Hewitt and Manning 2019): a projection in which trees are distances.

Squared distances between projected words are the steps between them in the tree (section 2.2), and
squared lengths the steps to the root (section 2.3). Losses and training are those of their code
(loss.py, regimen.py): Adam, a rate that is divided by ten after an epoch without gain on dev, and
an end after five such epochs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertjax.base.progress import Progress
from bertjax.lab.probes.trees import Tree

DISTANCE, DEPTH = "distance", "depth"
_NONE = -1.0  # the label on padding
_RATE, _BATCH, _LEAST_GAIN, _PATIENCE, _SPREAD = 1e-3, 20, 1e-4, 4, 0.05
_STEP = 16  # lengths are rounded up to multiples, so that few programs are compiled


class Words(NamedTuple):
    """Sentences, and the vector of each word, float [N, D], sentence after sentence."""

    trees: Sequence[Tree]
    vectors: np.ndarray

    def of_sentences(self) -> list[np.ndarray]:
        """The vectors of each sentence, float32 [n, D]."""
        borders = np.cumsum([len(tree.words) for tree in self.trees])[:-1]
        return np.split(np.asarray(self.vectors, np.float32), borders)


def predicted(probe_type: str, projection: jax.Array, vectors: jax.Array) -> jax.Array:
    """Squared distances [B, W, W], or squared lengths [B, W], that a probe of a kind predicts.

    Args:
      projection: [D, K].
      vectors: [B, W, D].
    """
    x = jnp.matmul(vectors, projection, precision=jax.lax.Precision.HIGHEST)
    if probe_type == DEPTH:
        return jnp.square(x).sum(-1)
    return jnp.square(x[:, :, None] - x[:, None]).sum(-1)


def l1_loss(
    probe_type: str, projection: jax.Array, vectors: jax.Array, labels: jax.Array
) -> jax.Array:
    """The sum over sentences of the mean absolute difference from the labels, -1 on padding."""
    is_label = labels != _NONE
    wrong = jnp.abs(predicted(probe_type, projection, vectors) - labels) * is_label
    places = tuple(range(1, labels.ndim))
    return (wrong.sum(places) / jnp.maximum(is_label.sum(places), 1)).sum()


@partial(jax.jit, static_argnums=0)
def _update(
    probe_type: str, projection: jax.Array, state: optax.OptState, rate: float, batch: tuple
) -> tuple[jax.Array, optax.OptState]:
    vectors, labels, sentences = batch
    gradient = jax.grad(lambda p: l1_loss(probe_type, p, vectors, labels) / sentences)(projection)
    direction, state = optax.scale_by_adam().update(gradient, state)
    return projection - rate * direction, state


_loss = jax.jit(l1_loss, static_argnums=0)
_predicted = jax.jit(predicted, static_argnums=0)


def train(
    probe_type: str, words: Words, dev: Words, rank: int, *, epochs: int = 40, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Trains a probe of rank K and a kind, `DISTANCE` or `DEPTH`, for `epochs` at most.

    It returns the projection, float32 [D, K], with the least loss on dev, and that loss.
    """
    width = words.vectors.shape[-1]
    key = jax.random.key(seed)
    projection = jax.random.uniform(key, (width, rank), minval=-_SPREAD, maxval=_SPREAD)
    state, rate = optax.scale_by_adam().init(projection), _RATE
    best, least, last_gain = projection, np.inf, 0
    taught, examined = _examples(probe_type, words), _examples(probe_type, dev)
    random = np.random.default_rng(seed)
    with Progress(f"{probe_type} probe of rank {rank}", epochs, " epochs") as progress:
        for epoch in range(epochs):
            for batch in _batches(taught, random.permutation(len(taught))):
                projection, state = _update(probe_type, projection, state, rate, batch)
            total = sum(
                float(_loss(probe_type, projection, vectors, labels))
                for vectors, labels, _ in _batches(examined, np.arange(len(examined)))
            )
            loss = total / len(examined)
            progress.update(1, f"dev loss {loss:.4f}")
            if not loss < least * (1 - _LEAST_GAIN):  # as torch's ReduceLROnPlateau
                rate /= 10
            if loss < least - _LEAST_GAIN:
                best, least, last_gain = projection, loss, epoch
            elif last_gain < epoch - _PATIENCE:
                break
    return np.asarray(best), float(least)


def predictions(probe_type: str, projection: np.ndarray, words: Words) -> list[np.ndarray]:
    """The distances [n, n] or depths [n] that a probe predicts for each sentence."""
    examples, found = _examples(probe_type, words), []
    for start in range(0, len(examples), _BATCH):
        some = range(start, min(start + _BATCH, len(examples)))
        vectors, _, _ = _padded([examples[number] for number in some])
        rows = np.asarray(_predicted(probe_type, projection, vectors))
        for row, number in zip(rows, some, strict=False):
            n = len(words.trees[number].words)
            found.append(row[:n] if probe_type == DEPTH else row[:n, :n])
    return found


_Example = tuple[np.ndarray, np.ndarray]  # vectors [n, D], labels [n, n] or [n]


def _examples(probe_type: str, words: Words) -> list[_Example]:
    label: Callable[[Tree], np.ndarray]
    label = (lambda tree: tree.distances) if probe_type == DISTANCE else (lambda tree: tree.depths)
    return [(x, label(tree)) for x, tree in zip(words.of_sentences(), words.trees, strict=True)]


def _batches(examples: Sequence[_Example], order: np.ndarray):
    for start in range(0, len(order), _BATCH):
        yield _padded([examples[number] for number in order[start : start + _BATCH]])


def _padded(examples: Sequence[_Example]) -> tuple[np.ndarray, np.ndarray, int]:
    """Vectors [20, W, D], labels [20, W, W] or [20, W], and how many sentences there are."""
    longest = -(-max(len(x) for x, _ in examples) // _STEP) * _STEP
    x, labels = examples[0]
    vectors = np.zeros((_BATCH, longest, x.shape[-1]), np.float32)
    padded = np.full((_BATCH, *[longest] * labels.ndim), _NONE, np.float32)
    for row, (x, labels) in enumerate(examples):
        vectors[row, : len(x)] = x
        padded[row][tuple(map(slice, labels.shape))] = labels
    return vectors, padded, len(examples)
