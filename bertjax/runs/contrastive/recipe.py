"""Checks a config of contrastive training completely, and converts it to settings."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from bertjax.base.checks import check_choice, check_divides, check_given, check_range
from bertjax.base.limits import Count, CountOrNone, Free, Meta, Names, Tokens, Weight
from bertjax.data.corpus.weights import check_weights, split_weight
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.embedding import DENSE, KINDS, POOLINGS, SPARSE, Embedding
from bertjax.models.heads.vector_modules import VectorModule
from bertjax.models.layers.similarity import SIMILARITIES
from bertjax.objectives.similarity import RerankingObjective, SimilarityObjective
from bertjax.objectives.similarity_losses import LOSSES, CoSent, SimilarityLoss
from bertjax.runs.fine_tuning import recipe as fine_tuning
from bertjax.runs.read import Config, OneOf, config_dict_of, read
from bertjax.runs.recipe import check_tensors
from bertjax.runs.training_recipe import TrainingRecipe
from bertjax.tasks.similarity.examples import Columns
from bertjax.training.optimizers.spec import OptimizerSpec

RERANKER = "reranker"
TASK_KINDS = (*KINDS, RERANKER)
_SHORTEST = 8  # tokens of a text, at most


def is_similarity(config: Config) -> bool:
    """Whether a config is one of contrastive training, perhaps with an unknown kind of task."""
    config_dict = config_dict_of(config)
    task = config_dict.get("task")
    known = isinstance(task, Mapping) and task.get("kind") in TASK_KINDS
    return known or {"loss", "columns"} <= config_dict.keys()


@dataclasses.dataclass(frozen=True)
class Steps:
    """Updates between two events.

    Attributes:
      log: between lines of metrics.
      evaluate: between evaluations on dev.
      checkpoint: between checkpoints.
    """

    log: Count = 20
    evaluate: Count = 500
    checkpoint: Count = 500


@dataclasses.dataclass(frozen=True)
class Reranker:
    """A model that reads a query and a passage as one sequence, and gives one score.

    Attributes:
      length: the most tokens of such a sequence; 0: as many as the encoder takes.
      pooling: what makes one vector of the tokens: "mean", "max", "cls" or "last"; "": as in the
        weights, or else as the family's classifiers.
      modules: what follows that pooling, before the score.
    """

    length: CountOrNone = 0
    pooling: str = ""
    modules: tuple[VectorModule, ...] = ()

    def __post_init__(self):
        check_choice("pooling", self.pooling, ("", *POOLINGS))
        if self.modules and not self.pooling:
            raise ValueError(f"modules={self.modules}: set pooling, too")


OPTIMIZER = dataclasses.replace(fine_tuning.OPTIMIZER, learning_rate=2e-5)
_LOSS = OneOf(
    *("name", LOSSES),
    hint=": name the loss after the config, as in configs/finetune_embeddings.py:{name}",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilarityRecipe(TrainingRecipe):
    """A checked config of contrastive training; the defaults are sentence-transformers' usual ones.

    Attributes:
      task: what is made of the encoder: vectors of texts, or scores of pairs of them.
      data: the sources, as "DIR", or several as "DIR@2,DIR@1": see
        `bertjax.tasks.similarity.examples`.
      columns: the names of their columns.
      dev: what chooses the best model (`bertjax.runs.contrastive.evaluation`), several with commas
        between; "": the dev files of the sources. The first one decides.
      init_from: weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.
      loss: what the similarities of texts shall be.
      dimensions: the loss is the sum of those of the vectors' first so many numbers; (): of the
        whole vectors.
      sparsity: the weights of the regularizer that makes sparse vectors of queries and of passages
        sparse.
      batch_size: queries of a batch, over all devices.
      chunks: in how many chunks a batch is encoded, to save memory; the gradient is that of the
        whole batch.
      apart: whether each batch has examples of one source only.
      fixed_lengths: whether all batches have the lengths of config.task. Otherwise a batch is only
        as long as its texts, of a few lengths, for each of which a program is compiled.
      epochs: how often each example comes.
      total_steps: the number of updates; 0: `epochs` times the examples.
      seed: determines the order of the examples, dropout and random parameters.
      batch_tokens: tokens that one device encodes together in evaluation; 0: 512 on a CPU, 16,384
        elsewhere.
      intervals: steps between lines of metrics, evaluations on dev, and checkpoints.
    """

    task: Annotated[
        Embedding | Reranker,
        OneOf("kind", {**dict.fromkeys(KINDS, Embedding), RERANKER: Reranker}),
    ]
    data: Free[Names] = ()
    columns: Columns = Columns()
    dev: Free[Names] = ()
    init_from: Free[str] = ""
    loss: Annotated[SimilarityLoss, _LOSS]
    dimensions: tuple[Count, ...] = ()
    sparsity: tuple[Weight, Weight] = (0.0, 0.0)
    batch_size: Annotated[int, Meta(ge=2, le=1_000_000)] = 64
    chunks: Count = 1
    apart: bool = False
    fixed_lengths: bool = False
    epochs: float = 1.0
    total_steps: CountOrNone = 0
    seed: CountOrNone = 0
    optimizer: OptimizerSpec = OPTIMIZER
    batch_tokens: Free[Tokens] = 0
    intervals: Free[Steps] = Steps()

    @property
    def embedding(self) -> Embedding | None:
        """How vectors are made of texts; None: it is a reranker."""
        return self.task if isinstance(self.task, Embedding) else None

    @property
    def scoring(self) -> Embedding | None:
        """What makes the vector of a pair, where it is not the family's own pooler."""
        task = self.task
        if not isinstance(task, Reranker) or not task.pooling:
            return None
        return Embedding(pooling=task.pooling, modules=task.modules, normalize=False)

    @property
    def length(self) -> int:
        """The most tokens of a pair that a reranker reads; 0: as many as the encoder takes."""
        return self.task.length if isinstance(self.task, Reranker) else 0

    @property
    def sources(self) -> list[tuple[str, float | None]]:
        """The sources of `data`, each with its weight, or None."""
        return [split_weight(each) for each in self.data]

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads a config; raises InputError, which names the first mistake in it."""
        config_dict = config_dict_of(config)
        recipe = read(cls, {"task": {}, "loss": {}, **config_dict, "config_dict": config_dict})
        recipe._check()
        return recipe

    def check_started(self) -> None:
        """Raises InputError if it names no data, or no weights."""
        files = "train.csv and dev.csv (.tsv, .jsonl, .parquet)"
        hint = f"name a folder with {files}, or several as DIR@2,DIR@1"
        check_given("config.data", self.data, hint)
        self.check_weights_named(self.init_from)

    def _check(self) -> None:
        check_weights([name for name, _ in self.sources], [weight for _, weight in self.sources])
        if not self.total_steps and self.epochs <= 0:
            raise self.wrong("epochs", "must be above 0, or set total_steps")
        check_divides("config.batch_size", self.batch_size, "config.chunks", self.chunks)
        self.check_shared(has_weights=True)
        self._check_task()

    def _check_task(self) -> None:
        kind = self.embedding.kind if self.embedding else RERANKER
        if self.dimensions and kind != DENSE:
            why = (
                f"only the vectors of config.task.kind={DENSE!r} have numbers that can be left out"
            )
            raise self.wrong("dimensions", f"{why}: set it to ()")
        if max(self.sparsity) and kind != SPARSE:
            why = f"is for config.task.kind={SPARSE!r} alone: set it to (0, 0)"
            raise self.wrong("sparsity", why)
        if self.embedding is None:
            if isinstance(self.loss, CoSent):
                why = "a reranker has a score of its own for each pair: take squared"
                raise self.wrong("loss.name", why)
            for key in ("symmetric", "learned_scale"):
                if getattr(self.loss, key, False):
                    raise self.wrong(f"loss.{key}", "a reranker has none: set it to False")
            return
        alike = SIMILARITIES[self.embedding.compared_by]
        if alike.every is None and not (self.loss.pairs_only or isinstance(self.loss, CoSent)):
            why = (
                f"compares only pairs, and config.loss.name={self.loss.name!r} all texts of a batch"
            )
            raise self.wrong("task.similarity", f"{why}: take cosine, or the loss cosent")

    def objective(self) -> SimilarityObjective | RerankingObjective:
        """What is minimized."""
        if self.embedding is None:
            return RerankingObjective(loss=self.loss, chunks=self.chunks, scoring=self.scoring)
        return SimilarityObjective(
            embedding=self.embedding,
            loss=self.loss,
            chunks=self.chunks,
            dimensions=self.dimensions,
            sparsity=self.sparsity,
        )

    def problem_of(self, scores: Sequence[float]) -> str:
        """Why the scores of a query's passages cannot be learned."""
        limits = self.embedding.similarity_limits if self.embedding else (-math.inf, math.inf)
        return self.loss.problem(scores, *limits)

    def lengths(self, spec: EncoderSpec) -> tuple[int, int]:
        """The most tokens of a query and of a passage; of a reranker, both times of a pair."""
        longest = spec.max_position_embeddings
        if self.embedding is None:
            return (self.length or longest,) * 2
        return self.embedding.length(True, longest), self.embedding.length(False, longest)

    def spec(self, encoder_spec: EncoderSpec, origin: str) -> EncoderSpec:
        """The spec of the pretrained weights from `origin`, with the switches of config.model.

        Raises InputError also for a length over the encoder's positions, or a dimension over the
        width of the vectors.
        """
        longest = encoder_spec.max_position_embeddings
        lengths = {"length": self.length}
        if self.embedding:
            lengths = {n: getattr(self.embedding, n) for n in ("query_length", "passage_length")}
            width = self.embedding.dimensions(encoder_spec.hidden_size)
            if (most := max(self.dimensions, default=0)) > width:
                why = f"{most} is over {width}, the width of the vectors of {origin}"
                raise self.wrong("dimensions", why)
        for name, length in lengths.items():
            if length:
                why = f", the longest sequence of {origin}; or 0 for that"
                check_range(f"config.task.{name}", length, _SHORTEST, longest, why)
        spec = read(type(encoder_spec), self.model, "config.model", encoder_spec)
        check_tensors(self.optimizer.name, spec)
        return spec
