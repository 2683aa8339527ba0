"""The scores of a task's predictions, as results.json has them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.files import sha256_of_file
from bertjax.runs.fine_tuning.data import name_in
from bertjax.tasks.task import Task

_OF_TYPE = ("f1", "precision", "recall")  # of each entity type: see `entity_scores`
_ADVICE = (
    ": nothing is learned that tells examples apart: take more config.grid.epochs, or another "
    "config.grid.learning_rate"
)


def scored(
    task: Task, examples: Mapping[str, Sequence[Any]], predictions: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The scores of every dev split, and the settings and the value from the first one."""
    first = task.dev_splits[0]
    settings = task.tune(examples[first], predictions[first])
    scores = {
        name: task.score(examples[name], predictions[name], settings) for name in task.dev_splits
    }
    value = scores[first][task.metric]
    return {
        "dev": scores,
        "settings": settings,
        "value": value if math.isfinite(value) else None,
        "degenerate": task.family.degenerate(predictions[first], settings),
    }


def mean_of(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Results of `scored` for several tasks together: the value is the mean of theirs."""
    wrong = {name: why for name, each in scores.items() if (why := each["degenerate"])}
    values = [each["value"] for each in scores.values()]
    return {
        "dev": {
            name_in(task, split): figures
            for task, each in scores.items()
            for split, figures in each["dev"].items()
        },
        "settings": {},
        "value": None if None in values else statistics.mean(values),
        "degenerate": "; ".join(f"{name}: {why}" for name, why in wrong.items()),
        "tasks": dict(scores),
    }


def digests(predictions: Path) -> dict[str, str]:
    """The SHA-256 of each file of predictions."""
    files = (path for path in sorted(predictions.glob("*")) if path.is_file())
    return {path.name: sha256_of_file(path) for path in files}


def in_a_line(result: Mapping[str, Any]) -> str:
    """The dev scores of a result of `scored` as one line, without those of single entity types."""
    texts = []
    for split, scores in result["dev"].items():
        of_types = {f"{name}_{entity_type}" for entity_type in _types(scores) for name in _OF_TYPE}
        overall = {name: value for name, value in scores.items() if name not in of_types}
        texts.append(f"{split}: {_figures(overall)}")
    why = result["degenerate"]
    advice = "" if why.startswith("diverged") else _ADVICE  # its own message has one
    return "; ".join(texts) + (f"  DEGENERATE: {why}{advice}" if why else "")


def by_type(result: Mapping[str, Any]) -> list[str]:
    """The dev scores of each entity type, a line for each."""
    return [
        f"{split} {type_}: {_figures({name: scores[f'{name}_{type_}'] for name in _OF_TYPE})}"
        for split, scores in result["dev"].items()
        for type_ in _types(scores)
    ]


def _types(scores: Mapping[str, float]) -> list[str]:
    begin = f"{_OF_TYPE[-1]}_"
    return [name.removeprefix(begin) for name in scores if name.startswith(begin)]


def _figures(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
