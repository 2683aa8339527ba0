"""The scores of a model on samples of its dev examples, for paired comparisons (the bootstrap).

Every trial, and every ensemble, is scored on the same samples of a split. So the figures of two
models can be subtracted sample by sample: what remains is how much their difference depends on the
choice of examples. A question is drawn with all its documents or candidates, as it is scored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.files import read_json, write_json
from bertjax.tasks.question_answering import Question
from bertjax.tasks.superglue_rows import Candidate
from bertjax.tasks.task import Task

SAMPLES = 50  # enough to estimate the standard error to a tenth of it
_SHARED = (Question, Candidate)  # examples that may share their id with others of one question

RESAMPLED_FILE = "resampled.json"  # in the folder of a trial or of an ensemble


def write_resampled(
    folder: Path,
    task: Task,
    examples: Mapping[str, Sequence[Any]],
    predictions: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
) -> None:
    """Writes {split: {metric: [SAMPLES figures]}} to a folder; `settings` are from `Task.tune`."""
    found = {
        split: _scores(task, examples[split], predictions[split], settings) for split in examples
    }
    write_json(folder / RESAMPLED_FILE, found)


def _scores(
    task: Task, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
) -> dict[str, list[float]]:
    """The scores that every sample has; a sample may lack an entity type, and so its scores."""
    units = _units(examples)
    number = len(units)
    draws = np.random.default_rng(number).integers(number, size=(SAMPLES, number))
    scores = []
    for draw in draws:
        drawn = [(copy, i) for copy, unit in enumerate(draw) for i in units[unit]]
        sample = [_as_copy(examples[i], copy) for copy, i in drawn]
        scores.append(task.score(sample, [predictions[i] for _, i in drawn], settings))
    names = [name for name in scores[0] if all(name in each for each in scores)]
    return {name: [round(float(each[name]), 3) for each in scores] for name in names}


def _units(examples: Sequence[Any]) -> list[list[int]]:
    """The units that are drawn: one example each, or all that share a question."""
    units: dict[str | int, list[int]] = {}
    for number, example in enumerate(examples):
        key = example.id if isinstance(example, _SHARED) else number
        units.setdefault(key, []).append(number)
    return list(units.values())


def _as_copy(example: Any, copy: int) -> Any:
    """The example; each copy of a question has an id of its own."""
    return example._replace(id=f"{copy}") if isinstance(example, _SHARED) else example


def read_resampled(folder: Path, split: str, metric: str) -> list[float] | None:
    """The figures on all samples; None if the folder has none."""
    path = folder / RESAMPLED_FILE
    if not path.exists():
        return None
    hint = "remove it; its row is then compared by its seeds alone"
    return read_json(path, hint=hint).get(split, {}).get(metric)
