"""The paper's pre-training and fine-tuning at four scales: a CPU, one chip, and slices of TPUs.

A study asks its scale for stages, so that one file serves all of them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertjax.base.checks import check_choice
from bertjax.lab.studies.study import Column, Stage
from bertjax.tasks.probabilities import PROBABILITIES

# The choice of features that the paper's tables have, except Table 7, which has them all.
_PARTS = {"NER features": "concat_last_four"}
# The tasks of the paper: config, folder of the data, the dev figure of the paper's tables.
_TASKS = {
    **{
        name: (f"configs/finetune_glue.py:{name}", "glue", f"dev/{metric}")
        for name, metric in {
            **{"CoLA": "matthews", "SST-2": "accuracy", "MRPC": "f1", "STS-B": "spearman"},
            **{"QQP": "f1", "QNLI": "accuracy", "RTE": "accuracy", "WNLI": "accuracy"},
        }.items()
    },
    "MNLI": ("configs/finetune_glue.py:MNLI", "glue", "dev_matched/accuracy"),
    "SQuAD": ("configs/finetune_squad.py:v1.1", "squad", "dev/f1"),
    "SQuAD 2.0": ("configs/finetune_squad.py:v2.0", "squad", "dev/f1_tuned"),
    "SWAG": ("configs/finetune_swag.py", "swag", "dev/accuracy"),
    "NER": ("configs/finetune_ner.py:finetune", "conll2003", "dev/f1"),
    "NER features": ("configs/finetune_ner.py:features", "conll2003", "dev/f1"),
    "TriviaQA": ("configs/finetune_triviaqa.py", "triviaqa", "dev/f1"),
}

_Sizes = Mapping[str, tuple[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large the runs of a study are.

    Attributes:
      name: as in `--scale`.
      sizes: "base" and "large" -> the config of pre-training, and the settings that differ from it.
      steps: of pre-training.
      fine_tuning: task, or "" for all -> settings of fine-tuning that differ from its config.
      tasks: the tasks whose files it has; () for all.
      lstm: the width of BiLSTMs.
      restarts: the seeds of each fine-tuning.
      systems: the number of models of an ensemble.
      chips: the chips that a pre-training uses.
      rate: useful operations a second of one chip in pre-training, by `launch/compile_check.py`;
        None: a step is measured here.
    """

    name: str
    sizes: _Sizes
    steps: int
    fine_tuning: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    lstm: int = 768
    restarts: int = 5
    systems: int = 7
    chips: int = 1
    rate: float | None = None

    def available(self, tasks: Iterable[str]) -> tuple[str, ...]:
        """Those tasks whose training files the scale has."""
        return tuple(task for task in tasks if not self.tasks or task in self.tasks)

    def with_bert(self) -> "Scale":
        """The scale with a recipe of BERT, for what only BERT has: next sentences, left to right.

        Otherwise the scale "cpu" has a modern recipe.
        """
        return _BERT_ON_A_CPU if self.name == "cpu" else self

    def pretrain(
        self, name: str, settings: Mapping[str, Any] | None = None, *, size: str = "base"
    ) -> Stage:
        """A pre-training with the settings of the scale, changed by `settings`."""
        config, of_size = self.sizes[size]
        settings = {"total_steps": self.steps, **of_size, **(settings or {})}
        return Stage(f"pretrain-{name}", "pretrain", config, settings)

    def fine_tune(
        self,
        task: str,
        start: Stage,
        settings: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        step: int | None = None,
    ) -> Stage:
        """A fine-tuning that begins with the weights of another stage (at `step`).

        `task` is a name of the paper's tables. `name` is added to that of the stage, to tell
        variants apart.
        """
        check_choice("task", task, _TASKS)
        config, data, _ = _TASKS[task]
        settings = {
            "grid.restarts": self.restarts,
            **self.fine_tuning.get("", {}),
            **self.fine_tuning.get(task, {}),
            **(settings or {}),
        }
        at = "" if step is None else f"{step}"
        words = (task.replace(" ", "-"), start.name.removeprefix("pretrain-"), at, name)
        return Stage(
            "-".join(word for word in words if word),
            *("finetune", config, settings, (start,), step, data),
            part=_PARTS.get(task, ""),
        )

    def fine_tuned(
        self,
        tasks: Iterable[str],
        start: Stage,
        settings: Mapping[str, Any] | None = None,
        *,
        name: str = "",
    ) -> dict[str, Stage]:
        """The stages of a row: one for each task, by its name."""
        return {task: self.fine_tune(task, start, settings, name=name) for task in tasks}


def task_column(task: str) -> Column:
    """The column of one task, with the figure of the paper's tables."""
    (column,) = columns((task,))
    return column


def columns(
    tasks: Sequence[str],
    published: Mapping[str, Sequence[float | None]] | None = None,
    *,
    figures: Mapping[str, str] | None = None,
) -> list[Column]:
    """A column for each task, with the published figure of each row.

    `figures`: task -> another figure than `_TASKS` has.
    """
    found = []
    for number, task in enumerate(tasks):
        figure = (figures or {}).get(task, _TASKS[task][2])
        known = {
            row: value
            for row, values in (published or {}).items()
            if (value := values[number]) is not None
        }
        found.append(Column(f"{task} {_metric(figure)}", task, figure, known))
    return found


def _metric(figure: str) -> str:
    name = figure.rpartition("/")[2]
    words = {"f1": "F1", "f1_tuned": "F1", "accuracy": "accuracy"}
    return words.get(name, name.capitalize())


def evaluate(start: Stage, batches: int = 50) -> Stage:
    """The held-out figures of a pre-training: see `launch/evaluate.py`."""
    return Stage(f"evaluate-{start.name}", "evaluate", "", {"batches": batches}, (start,))


def ensemble(name: str, runs: Iterable[Stage]) -> Stage:
    """One model of several fine-tuned ones: see `launch/ensemble.py`."""
    return Stage(name, "ensemble", "", {"by": PROBABILITIES}, tuple(runs))


def submission(start: Stage, runs: Iterable[Stage]) -> Stage:
    """The leaderboard's zip file of GLUE, from all its tasks fine-tuned from one pre-training."""
    name = start.name.removeprefix("pretrain-")
    return Stage(f"submission-{name}", "submission", start=tuple(runs))


def grammar(start: Stage, most: int | None = None, data: str = "blimp/blimp.jsonl.xz") -> Stage:
    """Scores grammar by at most so many pairs of each paradigm: see `launch/score.py`."""
    return Stage(f"grammar-{start.name}", "grammar", "", {"most": most}, (start,), data=data)


def same_text(start: Stage) -> Stage:
    """The masked-LM loss on the same text for all models: see `bertjax.programs.masked_text`."""
    return Stage(f"same-text-{start.name}", "masked_text", start=(start,))


_SMALL = {
    **{"phase_1.length": 128, "phase_1.batch_size": 16},
    **{"intervals.evaluate": 100, "intervals.checkpoint": 100},
}
_ON_A_CPU = Scale(
    "cpu",
    {
        # Four layers, because features are taken from the last four.
        size: (
            "configs/pretrain_modern_tiny.py",
            {
                **{"model.num_hidden_layers": layers, "model.hidden_size": width},
                **{"model.num_attention_heads": heads, "model.intermediate_size": 3 * width // 2},
                **_SMALL,
            },
        )
        for size, (layers, width, heads) in {"base": (4, 96, 3), "large": (6, 128, 4)}.items()
    },
    steps=600,
    fine_tuning={
        "": {"grid.learning_rate": (3e-4,), "grid.epochs": (2,)},
        # Its dev has ten thousand questions: a seed takes several times as long as another task's.
        "SQuAD": {
            **{"task.train": "train-v1.1.partial.json", "max_length": 256},
            **{"grid.restarts": 2},
        },
        "SQuAD 2.0": {"max_length": 256, "grid.restarts": 2},
        "NER": {
            **{"task.document_context": False, "max_length": 128},
            **{"grid.batch_size": (32,), "grid.epochs": (1,)},
        },
        "NER features": {
            **{"task.document_context": False, "max_length": 128},
            **{"features.hidden": 64, "grid.learning_rate": (1e-3,), "grid.epochs": (1,)},
        },
    },
    tasks=("CoLA", "MRPC", "STS-B", "RTE", "WNLI", "SQuAD", "NER", "NER features"),
    lstm=128,
    restarts=3,
    systems=3,
)
_BERT_ON_A_CPU = dataclasses.replace(
    _ON_A_CPU,
    sizes={
        "base": (
            "configs/pretrain_tiny.py",
            {
                **{"phase_1.share": 1.0, "phase_1.length": 128, "phase_1.batch_size": 32},
                **{"phase_2.share": 0.0, "intervals.evaluate": 100, "intervals.checkpoint": 100},
            },
        )
    },
)
_ON_A_CHIP: _Sizes = {
    "base": ("configs/pretrain_small.py", {}),
    "large": ("configs/pretrain_small.py", {"model.size": "medium"}),
}
_ON_PODS: _Sizes = {
    "base": ("configs/pretrain_base_16.py", {}),
    "large": ("configs/pretrain_large_64.py", {}),
}
# The rates are the estimates for v5e at length 128, in docs/results/benchmarks.md.
SCALES = {
    scale.name: scale
    for scale in (
        _ON_A_CPU,
        Scale("chip", _ON_A_CHIP, steps=100_000),
        Scale("16", _ON_PODS, steps=1_000_000, chips=16, rate=0.54 * 197e12),
        Scale("64", _ON_PODS, steps=1_000_000, chips=64, rate=0.38 * 197e12),
    )
}
