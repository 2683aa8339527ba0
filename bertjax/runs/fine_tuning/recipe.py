"""Checks a config of fine-tuning completely, and converts it to the settings of its trials."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeVar

import ml_collections

from bertjax.base.errors import InputError
from bertjax.base.validation import check_numbers, converted
from bertjax.inference.features.activations import CHOICES
from bertjax.interop.hugging_face import fields_of, has_model
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.architectures import ARCHITECTURES
from bertjax.models.heads.bilstm import BiLstm
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.runs.recipe import check_tensors
from bertjax.runs.sections import build, plain_config
from bertjax.tasks.conll import Conll
from bertjax.tasks.glue import Glue
from bertjax.tasks.squad import Squad
from bertjax.tasks.swag import Swag
from bertjax.tasks.table import Table
from bertjax.tasks.task import Task
from bertjax.tasks.triviaqa import TriviaQa
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.rules import sharding_layout
from bertjax.training.subset import AdapterSpec, check_subset

Number = TypeVar("Number", int, float)

TASKS: dict[str, type[Task]] = {
    **{"glue": Glue, "squad": Squad, "triviaqa": TriviaQa, "swag": Swag},
    **{"ner": Conll, "table": Table},
}


@dataclasses.dataclass(frozen=True)
class Grid:
    """The grid of hyperparameters (section A.3): each combination is tried `restarts` times.

    Attributes:
      batch_size, learning_rate, epochs: the values of each hyperparameter, or its only one.
      restarts: the number of seeds (seed, seed + 1, ...). A seed decides the order of the examples
        and the initial parameters of a new head.
    """

    batch_size: tuple[int, ...] | int
    learning_rate: tuple[float, ...] | float
    epochs: tuple[int, ...] | int
    restarts: int = 1

    def __post_init__(self):
        for field in ("batch_size", "learning_rate", "epochs"):
            values = _listed(getattr(self, field))
            if not values or min(values) <= 0:
                raise ValueError(f"{field}={values}: must be one or more positive numbers")
        if self.restarts < 1:
            raise ValueError(f"restarts={self.restarts}: must be at least 1")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The values of `batch_size`."""
        return _listed(self.batch_size)

    def combinations(self) -> Iterator[tuple[int, float, int]]:
        """Yields every combination of the values of (batch_size, learning_rate, epochs)."""
        rates, epochs = _listed(self.learning_rate), _listed(self.epochs)
        return itertools.product(self.batch_sizes, rates, epochs)


def _listed(values: tuple[Number, ...] | Number) -> tuple[Number, ...]:
    return values if isinstance(values, tuple) else (values,)


@dataclasses.dataclass(frozen=True)
class Trial:
    """The hyperparameters of one trial."""

    batch_size: int
    learning_rate: float
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        rate = f"{self.learning_rate:g}"
        return f"batch{self.batch_size}-rate{rate}-epochs{self.epochs}-seed{self.seed}"


# The fields of `config.optimizer` that differ from section A.2. The grid has the learning rate.
OPTIMIZER = {"warmup_steps": 0, "warmup_proportion": 0.1}


@dataclasses.dataclass(frozen=True)
class TrialIntervals:
    """The steps between two lines of metrics, and between two checkpoints of a running trial."""

    log: int
    checkpoint: int

    def __post_init__(self):
        for field in ("log", "checkpoint"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}={getattr(self, field)}: must be at least 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiLstmSettings:
    """A BiLSTM between the encoder and the output layer (section 5.1, Table 5).

    The paper does not give its size there; in section 5.3 it has two layers of 768.

    Attributes:
      hidden, depth, dropout: see `bertjax.models.heads.bilstm.BiLstm`; with hidden=0 there is none.
    """

    hidden: int = 0
    depth: int = 2
    dropout: float = 0.1

    def __post_init__(self):
        if self.hidden < 0 or self.depth < 1 or not 0 <= self.dropout < 1:
            raise ValueError("hidden must be at least 0, depth at least 1, and dropout in [0, 1)")

    def module(self) -> BiLstm | None:
        """The BiLSTM, or None."""
        return BiLstm(self.hidden, self.depth, self.dropout) if self.hidden else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features(BiLstmSettings):
    """The feature-based approach (section 5.3, Table 7).

    Attributes:
      choices: one or more keys of `bertjax.inference.features.activations.CHOICES`.
      hidden, depth, dropout, mix_dropout: see `bertjax.models.heads.bilstm.BiLstmTagger`.
      mix_l2: the weight in the loss of the squares of what decides the weights of a mix.
    """

    choices: tuple[str, ...] | str
    hidden: int = 768
    mix_dropout: float = 0.5
    mix_l2: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        choices = (self.choices,) if isinstance(self.choices, str) else self.choices
        if not choices or not set(choices) <= set(CHOICES):
            raise ValueError(f"choices={choices}: must be one or more of {', '.join(CHOICES)}")
        object.__setattr__(self, "choices", choices)
        if not 0 <= self.mix_dropout < 1 or not self.mix_l2 >= 0:
            raise ValueError("mix_dropout must be in [0, 1), and mix_l2 must not be negative")
        if not self.hidden:
            raise ValueError("hidden=0: must be at least 1: only a BiLSTM learns from features")


@dataclasses.dataclass(frozen=True)
class TaskRecipe:
    """A checked config.

    Attributes:
      plain: the config as nested dicts, in the form of config.json.
      tasks: the tasks by name; a single one, that of config.task, has the name "".
      share_power: see `bertjax.tasks.together.Together`; 1 with a single task.
    """

    plain: Mapping[str, Any] = dataclasses.field(compare=False)
    tasks: Mapping[str, Task]
    init_from: str
    seed: int
    grid: Grid
    max_length: int
    buckets: int
    accumulate: int
    model: Mapping[str, Any]
    optimizer: OptimizerSpec
    mesh: MeshSpec
    layout: str
    intervals: TrialIntervals
    batch_tokens: int
    bilstm: BiLstmSettings = BiLstmSettings()
    features: Features | None = None
    lm_weight: float = 0.0
    share_power: float = 1.0
    tracker: str = ""
    adapter: AdapterSpec = AdapterSpec()
    frozen: str = ""

    @property
    def task(self) -> Task:
        """The only task.

        Raises:
          InputError: the config is of several tasks.
        """
        if "" not in self.tasks:
            raise InputError(
                f"config.tasks names {', '.join(self.tasks)}: only launch/finetune.py takes "
                "several tasks together: elsewhere name the folder of one of them, as RUN/TASK"
            )
        return self.tasks[""]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that has results: the tasks, and "", which is all of them together."""
        return tuple(dict.fromkeys((*self.tasks, "")))

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict | Mapping[str, Any]) -> Self:
        """Reads a config such as `configs/finetune_*.py`.

        Raises:
          InputError: a key is unknown or missing, or a value is invalid; the message names it.
        """
        plain = plain_config(config)
        fields = dict(plain)
        data = fields.pop("data", "")
        if "tasks" in fields:
            fields["tasks"] = _tasks(data, fields["tasks"])
        else:
            fields["tasks"] = {"": _task("task", data, fields.pop("task", None))}
        sections = dict(
            **dict(grid=Grid, bilstm=BiLstmSettings, mesh=MeshSpec, intervals=TrialIntervals),
            adapter=AdapterSpec,
        )
        if "features" in fields:
            sections["features"] = Features
        for key, section in sections.items():
            fields[key] = build(key, section, fields.get(key, {}))
        fields["optimizer"] = _optimizer(fields.get("optimizer", {}))
        recipe = build("", cls, fields | dict(plain=plain))
        recipe._check()
        return recipe

    def _check(self) -> None:
        if not self.init_from:
            raise InputError(
                "config.init_from is empty: name the weights to fine-tune: a run, hf:FOLDER, "
                "hf:NAME or tf1:FOLDER"
            )
        for name, least in dict(seed=0, batch_tokens=0, buckets=1, accumulate=0).items():
            if getattr(self, name) < least:
                raise InputError(f"config.{name}={getattr(self, name)}: must be at least {least}")
        check_numbers("the last trial's config.seed", self.seed + self.grid.restarts - 1)
        for size in self.grid.batch_sizes:
            if self.accumulate and size % self.accumulate:
                raise InputError(
                    f"config.grid.batch_size={size} does not divide into "
                    f"config.accumulate={self.accumulate} parts"
                )
        if not self.bilstm.hidden and self.bilstm != BiLstmSettings():
            raise InputError(
                f"config.bilstm={dataclasses.asdict(self.bilstm)}: with hidden=0 there is no "
                "BiLSTM: set it, such as to 768, or leave the others as they were"
            )
        if self.features and self.bilstm.hidden:
            raise InputError(
                f"config.bilstm.hidden={self.bilstm.hidden}: a tagger over fixed features has a "
                "BiLSTM already, that of config.features: set it to 0"
            )
        if not self.lm_weight >= 0:
            raise InputError(f"config.lm_weight={self.lm_weight}: must not be negative")
        if self.lm_weight and "" not in self.tasks:
            raise InputError(
                f"config.lm_weight={self.lm_weight}: goes with one task, and config.tasks names "
                f"{', '.join(self.tasks)}: leave one out"
            )
        if self.lm_weight and (self.bilstm.hidden or self.features):
            raise InputError(
                f"config.lm_weight={self.lm_weight}: a BiLSTM reads on behind each token, and can "
                "predict no next one: leave one out"
            )
        if not 0 <= self.share_power <= 1:
            raise InputError(f"config.share_power={self.share_power}: must be from 0 to 1")
        if "" in self.tasks and self.share_power != 1:
            raise InputError(
                f"config.share_power={self.share_power}: one task has all batches: set it to 1"
            )
        check_subset(self.adapter, self.frozen, not self.features)
        sharding_layout(self.layout)

    def trials(self) -> list[Trial]:
        """Every combination of the grid, with each seed."""
        seeds = range(self.seed, self.seed + self.grid.restarts)
        return [Trial(*values, seed) for values in self.grid.combinations() for seed in seeds]

    def spec(self, given: Pretrained) -> EncoderSpec:
        """The spec of the given weights, with the switches of config.model.

        Raises:
          InputError: a sequence is longer than the weights have positions; switches contradict
            each other; the model cannot be stored as transformers has it.
        """
        longest = given.spec.max_position_embeddings
        if not 8 <= self.max_length <= longest:
            raise InputError(
                f"config.max_length={self.max_length}: must be from 8 to {longest}, the "
                f"longest sequence of {given.origin}"
            )
        for task in () if self.features else self.tasks.values():
            architecture = ARCHITECTURES[TASK_OBJECTIVES[task.family.objective].kind]
            if not architecture.fits(given.family):
                raise InputError(
                    f"{given.origin}: {given.family.name} has no head for {task.name}: give its "
                    "features to a tagger, as configs/finetune_ner.py:features does"
                )
        spec = build("model", type(given.spec), dataclasses.asdict(given.spec) | dict(self.model))
        check_tensors(self.optimizer.name, spec)
        if self.lm_weight:
            self._check_reads_on(spec)
        if any(self.in_transformers(spec, task) for task in self.tasks.values()):
            fields_of(spec, given.origin)
        return spec

    def _check_reads_on(self, spec: EncoderSpec) -> None:
        """Raises InputError unless the model can predict next tokens beside a class."""
        kind, heads = TASK_OBJECTIVES[self.task.family.objective].kind, family_of(spec).heads
        if not (kind in kinds.OF_WHOLE_TEXTS and heads.get(kinds.CAUSAL_LM) == ()):
            raise InputError(
                f"config.lm_weight={self.lm_weight}: only a GPT predicts the next token beside a "
                f"class of whole texts, and this is a {spec.encoder} for {kind}: set it to 0"
            )

    def in_transformers(self, spec: EncoderSpec, task: Task) -> bool:
        """Whether transformers has a class for a trained model; then it is stored for it."""
        kind = TASK_OBJECTIVES[task.family.objective].kind
        return not self.bilstm.hidden and has_model(spec, kind)

    def plain_of(self, name: str) -> Mapping[str, Any]:
        """The config of one of several tasks alone, or of all, in the form of config.json."""
        if not name:
            return self.plain
        own = {key: x for key, x in self.plain["tasks"][name].items() if key != "data"}
        plain = {key: x for key, x in self.plain.items() if key not in ("tasks", "share_power")}
        return plain | {"data": self.tasks[name].data, "task": own}


def _optimizer(section: Any) -> OptimizerSpec:
    section = converted(section, dict, "config.optimizer")
    if "learning_rate" in section:
        raise InputError("config.optimizer.learning_rate: give it as config.grid.learning_rate")
    return build("optimizer", OptimizerSpec, OPTIMIZER | section)


def check_task_name(name: str, place: str) -> None:
    """Raises InputError if a task of several cannot have this name, for flags and folders."""
    if not name.isidentifier():
        raise InputError(
            f"{place}: the name of a task must have letters, digits and _ alone, and no digit first"
        )


def _tasks(data: str, section: Any) -> dict[str, Task]:
    """The tasks of config.tasks by name; those without data of their own have config.data."""
    tasks: dict[str, Task] = {}
    for name, fields in converted(section, dict, "config.tasks").items():
        check_task_name(name, f"config.tasks.{name}")
        task = _task(f"tasks.{name}", data, fields)
        for other, known in tasks.items():
            if known == task:
                raise InputError(
                    f"config.tasks: {other} and {name} are the same task on the same data: leave "
                    "one of them out"
                )
        tasks[name] = task
    if len(tasks) < 2:
        raise InputError(
            f"config.tasks names {', '.join(tasks) or 'none'}: name two or more; one task alone is "
            "config.task"
        )
    return tasks


def _task(place: str, data: str, section: Any) -> Task:
    """The task of a section of the config, which may have data of its own."""
    fields = dict(section) if isinstance(section, Mapping) else {}
    fields["data"] = fields.get("data") or data
    kind = fields.pop("kind", None)
    if kind not in tuple(TASKS):
        raise InputError(f"config.{place}.kind={kind!r}: must be one of {', '.join(TASKS)}")
    if not fields["data"]:
        where = "config.data" if place == "task" else f"config.{place}.data"
        raise InputError(f"{where} is empty: name the folder with the task's files")
    return build(place, TASKS[kind], fields)
