"""Losses of contrastive training: what the similarities of texts shall be.

Each takes the similarities of a query with its own K passages, of which the first is the right one,
and some take those with all passages of the batch. In a batch, `query_key` [B] and `passage_key`
[B, K] number the texts: equal texts have equal numbers, and -1 means that there is no text.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from bertjax.base.limits import Positive, check_limits
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights

Every = Callable[[], jax.Array]  # makes the similarities of all queries with all passages
_NEVER = -1e9  # the similarity with a passage that is not compared
_ROUNDING = 1e-5  # by which a teacher's scores may be beyond their limits


class SimilarityLoss(abc.ABC):
    """A loss.

    Attributes:
      name: `config.loss.name`.
      passages: the fewest passages of a query.
      scored: whether it needs a score for each passage: of people, or of a teacher.
      pairs_only: whether it compares no other texts than those that the data put together.
    """

    name: ClassVar[str]
    passages: ClassVar[int] = 1
    scored: ClassVar[bool] = False
    pairs_only: ClassVar[bool] = True
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    def __post_init__(self):
        check_limits(self)

    @property
    def factor(self) -> float:
        """The factor of all similarities; it can be learned unless it is 0."""
        return 0.0

    @abc.abstractmethod
    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        """{name: [B]}: "task_loss" and metrics; [] if they are of the batch as a whole.

        `own` is float32 [B, K]; `every` makes float32 [B, B * K], or is None if a query is compared
        only with its own passages.
        """

    def weights(self, batch: Arrays) -> LossWeights:
        """The weight of each value; a number if there is one value."""
        return batch["is_real_example"]

    def problem(self, scores: Sequence[float], least: float, most: float) -> str:
        """Why a similarity of `least` to `most` cannot learn the scores, and what to do; or ""."""
        return ""

    def _scores_out_of_range(self, scores: Sequence[float], least: float, most: float) -> str:
        if all(least - _ROUNDING <= score <= most + _ROUNDING for score in scores):
            return ""
        return f"config.loss.name={self.name!r} takes scores from {least:g} to {most:g}: scale them"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking(SimilarityLoss):
    """The right passage against all others of the batch (InfoNCE, arXiv 1807.03748).

    It is sentence-transformers' MultipleNegativesRankingLoss. Never compared are: a passage or a
    query that is the same text as the query or its right passage, and the right passage of an equal
    query. Where there is no batch to compare with (rerankers), the others are the query's own.

    Attributes:
      scale: the factor of similarities, 1 / temperature.
      learned_scale: whether it is trained (CLIP, arXiv 2103.00020), from `scale` on.
      symmetric: whether the right query is chosen for each passage, too; the mean of both.
      false_negative_margin: others that are more alike than the right passage by more than this are
        taken for right ones, and not compared (arXiv 2506.05176, section 3); negative: all are.
    """

    name = "ranking"
    pairs_only = False

    scale: Positive = 20.0
    learned_scale: bool = False
    symmetric: bool = False
    false_negative_margin: float = -1.0

    @property
    def factor(self) -> float:
        return self.scale

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        right = paired[:, 0] * factor
        if every is None:
            scores = jnp.where(batch["passage_key"] < 0, _NEVER, paired * factor)
            return _cross_entropy_and_accuracy(jax.nn.logsumexp(scores, -1), right, scores)
        scores, width = every() * factor, paired.shape[1]
        compared = _compared(batch)
        if self.false_negative_margin >= 0:
            limit = jax.lax.stop_gradient(right + self.false_negative_margin * factor)
            compared &= scores <= limit[:, None]
        compared |= jnp.arange(scores.shape[1]) == jnp.arange(len(right))[:, None] * width
        scores = jnp.where(compared, scores, _NEVER)
        found = _cross_entropy_and_accuracy(jax.nn.logsumexp(scores, -1), right, scores)
        if self.symmetric:
            # Queries that fill up the batch are no candidates.
            real = batch["is_real_example"][:, None] > 0
            of_passages = jax.nn.logsumexp(jnp.where(real, scores[:, ::width], _NEVER), 0) - right
            found["task_loss"] = (found["task_loss"] + of_passages) / 2
        return found


def _compared(batch: Arrays) -> jax.Array:
    """Bool [B, B * K]: which passages are wrong for a query, as far as one knows."""
    query, passage = batch["query_key"], batch["passage_key"]
    right, every = passage[:, :1], passage.reshape(-1)
    same = (every == right) | (every == query[:, None])
    same_query = jnp.zeros((len(query), *passage.shape), bool)
    same_query = same_query.at[:, :, 0].set(query[:, None] == query)
    return (every >= 0) & ~same & ~same_query.reshape(same.shape)


def _cross_entropy_and_accuracy(
    total: jax.Array, right: jax.Array, scores: jax.Array
) -> dict[str, jax.Array]:
    """The cross-entropy, and whether no other is more alike."""
    accuracy = (right >= scores.max(-1)).astype(jnp.float32)
    return {"task_loss": total - right, "accuracy": accuracy}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Squared(SimilarityLoss):
    """The squared error of the similarity with one passage: with cosine, of its score."""

    name = "squared"
    scored = True

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        return {"task_loss": _mean_present(jnp.square(paired - batch["scores"]), batch)}

    def problem(self, scores: Sequence[float], least: float, most: float) -> str:
        problem = self._scores_out_of_range(scores, least, most)
        return problem and f"{problem}, or take 'cosent', for which only their order counts"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoSent(SimilarityLoss):
    """The pairs of a batch in the order of their scores: log(1 + sum exp(scale (s_i - s_j))).

    The sum is over all i with a lower score than j (CoSENT, 10.1109/TASLP.2024.3402087). With the
    similarity "angle" it is sentence-transformers' AnglELoss.

    Attributes:
      scale: the factor of similarities.
    """

    name = "cosent"
    scored = True
    pairs_only = False

    scale: Positive = 20.0

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        similarity, score = paired[:, 0] * self.scale, batch["scores"][:, 0]
        real = batch["is_real_example"] > 0
        lower = (score[:, None] < score) & real[:, None] & real
        difference = jnp.where(lower, similarity[:, None] - similarity, _NEVER)
        total = jax.nn.logsumexp(difference)
        return {"task_loss": jnp.logaddexp(total, 0.0)}

    def weights(self, batch: Arrays) -> LossWeights:
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Triplet(SimilarityLoss):
    """The right passage more alike than each of the others by a margin (arXiv 1503.03832).

    Attributes:
      margin: what is added to the similarities of the others.
    """

    name = "triplet"
    passages = 2

    margin: Positive = 0.2

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        missed = jax.nn.relu(self.margin - paired[:, :1] + paired[:, 1:])
        right = (paired[:, :1] > paired[:, 1:]).astype(jnp.float32)
        return {
            "task_loss": _mean_present(missed, batch, 1),
            "accuracy": _mean_present(right, batch, 1),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginSquared(SimilarityLoss):
    """The squared error of the difference to the right passage, as a teacher has it.

    It is MarginMSE (arXiv 2010.02666).
    """

    name = "margin_mse"
    passages = 2
    scored = True

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        score = batch["scores"]
        error = (paired[:, :1] - paired[:, 1:]) - (score[:, :1] - score[:, 1:])
        return {"task_loss": _mean_present(jnp.square(error), batch, 1)}

    def problem(self, scores: Sequence[float], least: float, most: float) -> str:
        if all(abs(scores[0] - score) <= most - least + _ROUNDING for score in scores):
            return ""
        return (
            f"config.loss.name={self.name!r} takes scores that differ from that of the right "
            f"passage by at most {most - least:g}: scale them, or allow greater similarities with "
            "config.task.similarity='dot' and config.task.normalize=False"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distribution(SimilarityLoss):
    """The divergence of softmax over a query's passages from a teacher's (arXiv 2010.11386).

    Attributes:
      temperature: what divides both scores.
    """

    name = "kl"
    passages = 2
    scored = True

    temperature: Positive = 1.0

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        absent = batch["passage_key"] < 0
        student, teacher = (
            jax.nn.log_softmax(jnp.where(absent, _NEVER, x / self.temperature), -1)
            for x in (paired, batch["scores"])
        )
        differences = jnp.where(absent, 0, jnp.exp(teacher) * (teacher - student))
        return {"task_loss": differences.sum(-1) * self.temperature**2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binary(SimilarityLoss):
    """Right or wrong: the cross-entropy of sigmoid, for each passage with its score, 0 to 1."""

    name = "binary"
    scored = True

    def values(
        self, paired: jax.Array, every: Every | None, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        score = batch["scores"]
        loss = jax.nn.softplus(paired) - score * paired
        right = ((paired > 0) == (score > 0.5)).astype(jnp.float32)
        return {"task_loss": _mean_present(loss, batch), "accuracy": _mean_present(right, batch)}

    def problem(self, scores: Sequence[float], least: float, most: float) -> str:
        return self._scores_out_of_range(scores, 0, 1)


def _mean_present(values: jax.Array, batch: Arrays, first: int = 0) -> jax.Array:
    """The mean over a query's passages that are there: [B, K - first] -> [B]."""
    is_present = batch["passage_key"][:, first:] >= 0
    return jnp.where(is_present, values, 0).sum(-1) / jnp.maximum(is_present.sum(-1), 1)


LOSSES: dict[str, type[SimilarityLoss]] = {
    loss.name: loss
    for loss in (Ranking, Squared, CoSent, Triplet, MarginSquared, Distribution, Binary)
}
