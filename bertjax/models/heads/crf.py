"""A conditional random field over the tags of a sequence's words (Lafferty et al., 2001).

The score of a path of tags is the sum of the logits of its tags, of a number for each pair of
neighbours, and of one for its first tag and one for its last (Lample et al., arXiv 1603.01360).
Tokens that are no first piece of a word are skipped. Nothing forbids a pair of tags.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.layers.dense import parameter


class Crf(nn.Module):
    """What is made of the logits of C tags. Its parameters are 0 at first, and say nothing."""

    num_classes: int

    @nn.compact
    def __call__(self, logits: jax.Array, inputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns "logits"; "path"; and, if there are "label_ids" int [B, S], "log_likelihood".

        Logits are float32 [B, S, C], "word_mask" int [B, S] is 1 on tokens that have a tag. "path",
        float32 [B, S], has the numbers of the words' best tags (at other tokens, that of a word
        nearby); "log_likelihood" [B] is of all tags of a sequence.
        """
        count, zeros = self.num_classes, nn.initializers.zeros
        pairs = (axes.CLASSES, axes.CLASSES)
        between = parameter(self, "between", pairs, (count, count), zeros)
        first = parameter(self, "first", pairs[1:], (count,), zeros)
        last = parameter(self, "last", pairs[1:], (count,), zeros)
        mask = inputs["word_mask"] > 0
        path = best_path(logits, mask, between, first, last)
        outputs = {"logits": logits, "path": path.astype(jnp.float32)}
        if "label_ids" in inputs:
            tags = jnp.maximum(inputs["label_ids"], 0)
            score = _score(logits, mask, tags, between, first, last)
            outputs["log_likelihood"] = score - _log_sum(logits, mask, between, first, last)
        return outputs


def _log_sum(
    logits: jax.Array, mask: jax.Array, between: jax.Array, first: jax.Array, last: jax.Array
) -> jax.Array:
    """The logarithm of the sum of exp(score) over all paths, [B]; 0 without words."""

    def step(
        state: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        sums, started = state
        logits, is_word = now
        after = jax.nn.logsumexp(sums[:, :, None] + between, axis=1)
        new = jnp.where(started, after, first) + logits
        return (jnp.where(is_word, new, sums), started | is_word), None

    (sums, started), _ = jax.lax.scan(step, _beginning(logits), _steps(logits, mask))
    return jnp.where(started[:, 0], jax.nn.logsumexp(sums + last, axis=1), 0.0)


def _score(
    logits: jax.Array,
    mask: jax.Array,
    tags: jax.Array,
    between: jax.Array,
    first: jax.Array,
    last: jax.Array,
) -> jax.Array:
    """The score of one path, int [B, S], in each sequence: [B]; 0 without words."""

    def step(
        state: tuple[jax.Array, jax.Array, jax.Array],
        now: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        score, before, started = state
        logits, is_word, tag = now
        added = jnp.where(started, between[before, tag], first[tag])
        added += jnp.take_along_axis(logits, tag[:, None], 1)[:, 0]
        score = jnp.where(is_word, score + added, score)
        return (score, jnp.where(is_word, tag, before), started | is_word), None

    rows = len(logits)
    empty = jnp.zeros(rows), jnp.zeros(rows, tags.dtype), jnp.zeros(rows, bool)
    steps = (logits.swapaxes(0, 1), mask.T, tags.T)
    (score, tag, started), _ = jax.lax.scan(step, empty, steps)
    return score + jnp.where(started, last[tag], 0.0)


def best_path(
    logits: jax.Array, mask: jax.Array, between: jax.Array, first: jax.Array, last: jax.Array
) -> jax.Array:
    """The path with the greatest score, int32 [B, S] (Viterbi, 1967)."""
    tags = jnp.arange(logits.shape[-1])

    def step(
        state: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        best, started = state
        logits, is_word = now
        through = best[:, :, None] + between  # [B, before, tag]
        new = jnp.where(started, through.max(1), first) + logits
        came_from = jnp.where(is_word & started, through.argmax(1), tags)
        return (jnp.where(is_word, new, best), started | is_word), came_from

    (best, _), came_from = jax.lax.scan(step, _beginning(logits), _steps(logits, mask))

    def back(tag: jax.Array, came_from: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.take_along_axis(came_from, tag[:, None], 1)[:, 0], tag

    _, path = jax.lax.scan(back, (best + last).argmax(-1), came_from, reverse=True)
    return path.T.astype(jnp.int32)


def _beginning(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The state before a word: a number for each tag, and whether a word was there, bool [B, 1]."""
    return jnp.zeros_like(logits[:, 0]), jnp.zeros((len(logits), 1), bool)


def _steps(logits: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    return logits.swapaxes(0, 1), mask.T[..., None]
