"""Checks a config of fine-tuning completely, and converts it to the settings of its trials."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar

from bertjax.base.checks import check_divides, check_given, check_range
from bertjax.base.errors import InputError
from bertjax.base.limits import (
    Count,
    CountOrNone,
    Few,
    Free,
    Key,
    Many,
    Positive,
    Rate,
    Share,
    Tokens,
    Tried,
    Weight,
    Width,
    WidthOrNone,
)
from bertjax.base.validation import check_numbers, converted
from bertjax.inference.features.activations import CHOICES
from bertjax.interop.hugging_face import fields_of, has_model
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.read import Config, OneOf, config_dict_of, read
from bertjax.runs.recipe import check_tensors
from bertjax.runs.training_recipe import TrainingRecipe
from bertjax.tasks.conll import Conll
from bertjax.tasks.glue import Glue
from bertjax.tasks.squad import Squad
from bertjax.tasks.superglue import SuperGlue
from bertjax.tasks.swag import Swag
from bertjax.tasks.table import Table
from bertjax.tasks.task import Task
from bertjax.tasks.triviaqa import TriviaQa
from bertjax.training.optimizers.spec import OptimizerSpec

Number = TypeVar("Number", int, float)

TASKS: dict[str, type[Task]] = {
    **{"glue": Glue, "superglue": SuperGlue, "squad": Squad, "triviaqa": TriviaQa, "swag": Swag},
    **{"ner": Conll, "table": Table},
}


TaskSection = Annotated[Task, OneOf("kind", TASKS)]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The grid of hyperparameters (section A.3): each combination is tried `restarts` times.

    Attributes:
      batch_size, learning_rate, epochs: the values of each hyperparameter, or its only one.
      restarts: the number of seeds (seed, seed + 1, ...). A seed decides the order of the examples
        and the initial parameters of a new head.
    """

    batch_size: tuple[Many, ...] | Many = (32,)
    learning_rate: tuple[Positive, ...] | Positive = (5e-5,)
    epochs: tuple[Few, ...] | Few = (3,)
    restarts: Few = 1

    def __post_init__(self):
        for field in ("batch_size", "learning_rate", "epochs"):
            if getattr(self, field) == ():
                raise ValueError(f"{field}=(): must be one or more positive numbers")

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


_KEYS = Key(("task", "tasks"))  # by which a config has its tasks

# The fields of `config.optimizer` that differ from section A.2. The grid has the learning rate.
OPTIMIZER = OptimizerSpec(warmup_steps=0, warmup_proportion=0.1)


@dataclasses.dataclass(frozen=True)
class TrialIntervals:
    """The steps between two events of a running trial.

    Attributes:
      log: between two lines of metrics.
      checkpoint: between two checkpoints.
    """

    log: Count = 20
    checkpoint: Count = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiLstmSettings:
    """A BiLSTM between the encoder and the output layer (section 5.1, Table 5).

    The paper does not give its size there; in section 5.3 it has two layers of 768.

    Attributes:
      hidden, depth, dropout: see `bertjax.models.heads.bilstm.BiLstm`; with hidden=0 there is none.
    """

    hidden: WidthOrNone = 0
    depth: Few = 2
    dropout: Rate = 0.1

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

    choices: Tried[tuple[str, ...] | str]
    hidden: Width = 768
    mix_dropout: Rate = 0.5
    mix_l2: Weight = 0.1

    def __post_init__(self):
        choices = (self.choices,) if isinstance(self.choices, str) else self.choices
        if not choices or not set(choices) <= set(CHOICES):
            raise ValueError(f"choices={choices}: must be one or more of {', '.join(CHOICES)}")
        object.__setattr__(self, "choices", choices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRecipe(TrainingRecipe):
    """A checked config of fine-tuning; the defaults are those of section A.3.

    Attributes:
      task: the task.
      tasks: in place of `task`, several by their names, which are learned together. (In this class,
        a single one is here, with the name "".)
      data: the folder with the files of the tasks that name none.
      init_from: weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.
      grid: every combination is tried, with seeds from config.seed on; the best on dev is kept.
      seed: of the first trial.
      max_length: tokens of a sequence; longer ones are cut (or, for SQuAD and tagging, go into
        windows).
      accumulate: the microbatches of a batch, each with texts of similar length. The update is
        the same, but needs less padding and memory. 0: as many as suit the texts and the device.
      buckets: the most lengths to which microbatches are padded; a program is compiled for each.
      lm_weight: the weight of the next token's loss next to the task's, for GPT, whose paper has
        0.5.
      bilstm: a BiLSTM over the encoder, new in every trial, if hidden is above 0, such as 768.
      features: the feature-based approach: a tagger over fixed vectors of the encoder.
      optimizer: the optimizer and its schedule; the grid has the rate.
      batch_tokens: tokens that one device predicts together; 0: 512 on a CPU, 16,384 elsewhere.
      intervals: steps between lines of metrics, and between checkpoints of a trial under way.
      share_power: see `bertjax.tasks.together.Together`; 1 with a single task.
    """

    tasks: Annotated[Mapping[str, Task], OneOf("kind", TASKS, later=True), _KEYS]
    data: Free[str] = ""
    init_from: Free[str] = ""
    grid: Tried[Grid] = Grid()
    seed: CountOrNone = 0
    max_length: Count = 128
    accumulate: CountOrNone = 0
    buckets: Few = 5
    lm_weight: Weight = 0.0
    bilstm: BiLstmSettings = BiLstmSettings()
    features: Features | None = None
    optimizer: OptimizerSpec = OPTIMIZER
    batch_tokens: Free[Tokens] = 0
    intervals: Free[TrialIntervals] = TrialIntervals()
    share_power: Share = 1.0

    @property
    def task(self) -> Task:
        """The only task; raises InputError if the config is of several."""
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
    def from_config(cls, config: Config) -> Self:
        """Reads a config; raises InputError, which names the first mistake in it."""
        config_dict = config_dict_of(config)
        fields = dict(config_dict)
        data = config_dict.get("data", "")
        if "tasks" in fields:
            if "task" in fields:
                raise InputError("config.task and config.tasks: leave one out")
            fields["tasks"] = _tasks(data, fields["tasks"])
        else:
            fields["tasks"] = {"": _task("task", data, fields.pop("task", None))}
        if "learning_rate" in converted(fields.get("optimizer", {}), dict, "config.optimizer"):
            raise InputError("config.optimizer.learning_rate: give it as config.grid.learning_rate")
        recipe = read(cls, fields | dict(config_dict=config_dict))
        recipe._check()
        return recipe

    def _check(self) -> None:
        self.check_weights_named(self.init_from)
        check_numbers("the last trial's config.seed", self.seed + self.grid.restarts - 1)
        for size in self.grid.batch_sizes:
            check_divides("config.grid.batch_size", size, "config.accumulate", self.accumulate)
        if not self.bilstm.hidden and self.bilstm != BiLstmSettings():
            raise InputError(
                f"config.bilstm={dataclasses.asdict(self.bilstm)}: with hidden=0 there is no "
                "BiLSTM: set it, such as to 768, or leave the others as they were"
            )
        if self.features and self.bilstm.hidden:
            why = "a tagger over fixed features has a BiLSTM already, that of config.features"
            raise self.wrong("bilstm.hidden", f"{why}: set it to 0")
        if self.lm_weight and "" not in self.tasks:
            why = f"goes with one task, and config.tasks names {', '.join(self.tasks)}"
            raise self.wrong("lm_weight", f"{why}: leave one out")
        if self.lm_weight and (self.bilstm.hidden or self.features):
            why = "a BiLSTM reads on after each token, and can predict no next one: leave one out"
            raise self.wrong("lm_weight", why)
        if "" in self.tasks and self.share_power != 1:
            raise self.wrong("share_power", "one task has all batches: set it to 1")
        self.check_shared(has_weights=not self.features)

    def trials(self) -> list[Trial]:
        """Every combination of the grid, with each seed."""
        seeds = range(self.seed, self.seed + self.grid.restarts)
        return [Trial(*values, seed) for values in self.grid.combinations() for seed in seeds]

    def spec(self, pretrained: Pretrained) -> EncoderSpec:
        """The spec of the pretrained weights, with the switches of config.model.

        Raises InputError also if a sequence is longer than the weights have positions, or if the
        model cannot be stored as transformers has it.
        """
        longest = pretrained.spec.max_position_embeddings
        why = f", the longest sequence of {pretrained.origin}"
        check_range("config.max_length", self.max_length, 8, longest, why)
        for task in () if self.features else self.tasks.values():
            head_spec = HEAD_SPECS[TASK_LOSSES[task.family.objective].head_type]
            if not head_spec.fits(pretrained.family):
                raise InputError(
                    f"{pretrained.origin}: {pretrained.family.name} has no head for {task.name}: "
                    "give its features to a tagger, as configs/finetune_ner.py:features does"
                )
        spec = read(type(pretrained.spec), self.model, "config.model", pretrained.spec)
        check_tensors(self.optimizer.name, spec)
        if self.lm_weight:
            self._check_reads_on(spec)
        if any(self.in_transformers(spec, task) for task in self.tasks.values()):
            fields_of(spec, pretrained.origin)
        return spec

    def _check_reads_on(self, spec: EncoderSpec) -> None:
        """Raises InputError unless the model can predict next tokens and a class."""
        head_type, heads = TASK_LOSSES[self.task.family.objective].head_type, family_of(spec).heads
        if not (head_type in head_types.OF_WHOLE_TEXTS and heads.get(head_types.CAUSAL_LM) == ()):
            problem = f"this is a {spec.encoder} for {head_type}: set it to 0"
            why = (
                f"only a GPT predicts the next token next to a class of whole texts, and {problem}"
            )
            raise self.wrong("lm_weight", why)

    def in_transformers(self, spec: EncoderSpec, task: Task) -> bool:
        """Whether transformers has a class for a trained model; then it is stored for it."""
        head_type = TASK_LOSSES[task.family.objective].head_type
        return not self.bilstm.hidden and has_model(spec, head_type)

    def config_dict_of(self, name: str) -> Mapping[str, Any]:
        """The config of one of several tasks alone, or of all, in the form of config.json."""
        if not name:
            return self.config_dict
        task_section = {
            key: x for key, x in self.config_dict["tasks"][name].items() if key != "data"
        }
        config_dict = {
            key: x for key, x in self.config_dict.items() if key not in ("tasks", "share_power")
        }
        return config_dict | {"data": self.tasks[name].data, "task": task_section}


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
    if fields.get("kind") in tuple(TASKS):
        where = "config.data" if place == "task" else f"config.{place}.data"
        check_given(where, fields["data"], "name the folder with the task's files")
    return read(TaskSection, fields, f"config.{place}")
