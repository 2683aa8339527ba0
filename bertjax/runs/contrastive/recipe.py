"""Checks a config of contrastive training completely, and converts it to settings."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from bertjax.base.errors import InputError
from bertjax.base.validation import converted
from bertjax.data.corpus.weights import check_weights, split_weight
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.embedding import DENSE, KINDS, SPARSE, Embedding
from bertjax.models.layers.similarity import SIMILARITIES
from bertjax.objectives.similarity import RerankingObjective, SimilarityObjective
from bertjax.objectives.similarity_losses import LOSSES, CoSent, SimilarityLoss
from bertjax.runs.recipe import check_tensors
from bertjax.runs.sections import Config, build, plain_config
from bertjax.tasks.similarity.examples import Columns
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.rules import sharding_layout
from bertjax.training.subset import AdapterSpec, check_subset

RERANKER = "reranker"
TASK_KINDS = (*KINDS, RERANKER)
_SHORTEST = 8  # tokens of a text, at most


def is_similarity(config: Config) -> bool:
    """Whether a config is one of contrastive training, perhaps with an unknown kind of task."""
    plain = plain_config(config)
    task = plain.get("task")
    known = isinstance(task, Mapping) and task.get("kind") in TASK_KINDS
    return known or {"loss", "columns"} <= plain.keys()


@dataclasses.dataclass(frozen=True)
class Steps:
    """Updates between lines of metrics, evaluations on dev and checkpoints.

    Raises:
      ValueError: a number is below 1.
    """

    log: int
    evaluate: int
    checkpoint: int

    def __post_init__(self):
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")


@dataclasses.dataclass(frozen=True)
class Reranker:
    """A model that reads a query and a passage as one sequence, and gives one score.

    Attributes:
      length: the most tokens of such a sequence; 0: as many as the encoder takes.
    """

    length: int = 0

    def __post_init__(self):
        if self.length < 0:
            raise ValueError(f"length={self.length}: must be at least 0")


@dataclasses.dataclass(frozen=True)
class SimilarityRecipe:
    """A checked config. `plain` is the config as nested dicts, in the form of config.json.

    Attributes:
      data: (source, weight or None); see `bertjax.tasks.similarity.examples`.
      dev: what the best model is chosen by; see `bertjax.runs.contrastive.evaluation`. (): the dev
        files of the first source.
      embedding: how vectors are made of texts; None: it is a reranker.
      length: the most tokens of a pair that a reranker reads; 0: as many as the encoder takes.
      apart: whether each batch has examples of one source only.
      total_steps: the number of updates; 0: `epochs` times the examples.
      fixed_lengths: see `bertjax.tasks.similarity.batches.Batches`, `snug`.
    """

    plain: Mapping[str, Any] = dataclasses.field(compare=False)
    data: tuple[tuple[str, float | None], ...]
    dev: tuple[str, ...]
    init_from: str
    columns: Columns
    embedding: Embedding | None
    loss: SimilarityLoss
    batch_size: int
    chunks: int
    epochs: float
    total_steps: int
    apart: bool
    fixed_lengths: bool
    seed: int
    model: Mapping[str, Any]
    optimizer: OptimizerSpec
    mesh: MeshSpec
    layout: str
    intervals: Steps
    batch_tokens: int
    length: int = 0
    dimensions: tuple[int, ...] = ()
    sparsity: tuple[float, float] = (0.0, 0.0)
    tracker: str = ""
    adapter: AdapterSpec = AdapterSpec()
    frozen: str = ""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads a config such as `configs/finetune_embeddings.py`.

        Raises:
          InputError: a key is unknown or missing, or a value is invalid; the message names it.
        """
        plain = plain_config(config)
        fields = dict(plain)
        fields["embedding"], fields["length"] = _task(fields.pop("task", None))
        fields["loss"] = _loss(fields.get("loss"))
        sections = dict(columns=Columns, optimizer=OptimizerSpec, mesh=MeshSpec, intervals=Steps)
        sections["adapter"] = AdapterSpec
        for key, section in sections.items():
            fields[key] = build(key, section, fields.get(key, {}))
        named = [split_weight(each) for each in _listed(fields.get("data", ""))]
        check_weights([name for name, _ in named], [weight for _, weight in named])
        fields |= dict(data=tuple(named), dev=_listed(fields.get("dev", "")))
        recipe = build("", cls, fields | dict(plain=plain))
        recipe._check()
        return recipe

    def check_begun(self) -> None:
        """Checks that it names what a run needs.

        Raises:
          InputError: it names no data, or no weights.
        """
        if not self.data:
            raise InputError(
                "config.data is empty: name a folder with train.csv and dev.csv (.tsv, .jsonl, "
                ".parquet), or several as DIR@2,DIR@1"
            )
        if not self.init_from:
            raise InputError(
                "config.init_from is empty: name the weights to start from: a run, hf:FOLDER, "
                "hf:NAME or tf1:FOLDER"
            )

    def _check(self) -> None:
        least = dict(batch_size=2, chunks=1, total_steps=0, seed=0, batch_tokens=0)
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InputError(f"config.{name}={getattr(self, name)}: must be at least {value}")
        if not self.total_steps and self.epochs <= 0:
            raise InputError(f"config.epochs={self.epochs}: must be above 0, or set total_steps")
        if self.batch_size % self.chunks:
            raise InputError(
                f"config.batch_size={self.batch_size} does not divide into "
                f"config.chunks={self.chunks} parts"
            )
        check_subset(self.adapter, self.frozen)
        sharding_layout(self.layout)
        self._check_task()

    def _check_task(self) -> None:
        """Checks that the loss, its settings and the vectors fit each other."""
        kind = self.embedding.kind if self.embedding else RERANKER
        if self.dimensions and kind != DENSE:
            raise InputError(
                f"config.dimensions={self.dimensions}: only the vectors of "
                f"config.task.kind={DENSE!r} have numbers that can be left out: set it to ()"
            )
        if self.dimensions and min(self.dimensions) < 1:
            raise InputError(f"config.dimensions={self.dimensions}: must be at least 1")
        if min(self.sparsity) < 0 or (max(self.sparsity) and kind != SPARSE):
            raise InputError(
                f"config.sparsity={self.sparsity}: must be weights of at least 0, for "
                f"config.task.kind={SPARSE!r} alone"
            )
        loss = f"config.loss.name={self.loss.name!r}"
        if self.embedding is None:
            if isinstance(self.loss, CoSent):
                raise InputError(
                    f"{loss}: a reranker has a score of its own for each pair: take squared"
                )
            for name in ("symmetric", "learned_scale"):
                if getattr(self.loss, name, False):
                    raise InputError(
                        f"config.loss.{name}=True: a reranker has none: set it to False"
                    )
            return
        alike = SIMILARITIES[self.embedding.compared_by]
        if alike.every is None and not (self.loss.pairs_only or isinstance(self.loss, CoSent)):
            raise InputError(
                f"config.task.similarity={self.embedding.similarity!r} compares only pairs, and "
                f"{loss} all texts of a batch: take cosine, or the loss cosent"
            )

    def objective(self) -> SimilarityObjective | RerankingObjective:
        """What is minimized."""
        if self.embedding is None:
            return RerankingObjective(loss=self.loss, chunks=self.chunks)
        return SimilarityObjective(
            embedding=self.embedding,
            loss=self.loss,
            chunks=self.chunks,
            dimensions=self.dimensions,
            sparsity=self.sparsity,
        )

    def problem_of(self, scores: Sequence[float]) -> str:
        """Why the scores of a query's passages cannot be learned: see `SimilarityLoss.problem`."""
        limits = self.embedding.likenesses if self.embedding else (-math.inf, math.inf)
        return self.loss.problem(scores, *limits)

    def lengths(self, spec: EncoderSpec) -> tuple[int, int]:
        """The most tokens of a query and of a passage; of a reranker, both times of a pair."""
        longest = spec.max_position_embeddings
        if self.embedding is None:
            return (self.length or longest,) * 2
        return self.embedding.length(True, longest), self.embedding.length(False, longest)

    def spec(self, given: EncoderSpec, origin: str) -> EncoderSpec:
        """The spec of the given weights, with the switches of config.model.

        Args:
          origin: where they come from, for messages.

        Raises:
          InputError: a length is over the encoder's positions; a dimension is over its width;
            switches contradict each other.
        """
        longest = given.max_position_embeddings
        lengths = {"length": self.length}
        if self.embedding:
            lengths = {n: getattr(self.embedding, n) for n in ("query_length", "passage_length")}
        for name, length in lengths.items():
            if length and not _SHORTEST <= length <= longest:
                raise InputError(
                    f"config.task.{name}={length}: must be from {_SHORTEST} to {longest}, the "
                    f"longest sequence of {origin}; or 0 for that"
                )
        if self.dimensions and max(self.dimensions) > given.hidden_size:
            raise InputError(
                f"config.dimensions={self.dimensions}: {max(self.dimensions)} is over "
                f"{given.hidden_size}, the width of the vectors of {origin}"
            )
        spec = build("model", type(given), dataclasses.asdict(given) | dict(self.model))
        check_tensors(self.optimizer.name, spec)
        return spec


def _listed(names: Any) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in str(names).split(","))))


def _task(section: Any) -> tuple[Embedding | None, int]:
    """`SimilarityRecipe.embedding` and `length`."""
    fields = dict(converted(section or {}, dict, "config.task"))
    kind = fields.get("kind")
    if kind not in TASK_KINDS:
        raise InputError(f"config.task.kind={kind!r}: must be one of {', '.join(TASK_KINDS)}")
    if kind != RERANKER:
        return build("task", Embedding, fields), 0
    del fields["kind"]
    return None, build("task", Reranker, fields).length


def _loss(section: Any) -> SimilarityLoss:
    fields = dict(converted(section or {}, dict, "config.loss"))
    name = fields.pop("name", None)
    if name not in tuple(LOSSES):
        raise InputError(f"config.loss.name={name!r}: must be one of {', '.join(LOSSES)}")
    known = [field.name for field in dataclasses.fields(LOSSES[name])]
    for key in fields:
        if key not in known:
            has = ", ".join(known) or "no settings"
            raise InputError(
                f"config.loss.{key}: the loss {name!r} has {has}: name the loss behind the config, "
                f"as in configs/finetune_embeddings.py:{name}"
            )
    return build("loss", LOSSES[name], fields)
