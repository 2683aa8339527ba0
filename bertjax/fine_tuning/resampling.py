"""The scores of a model on samples of its dev examples, for paired comparisons (the bootstrap).

Every trial, and every ensemble, is scored on the same samples of a split, so the figures of two
models can be subtracted sample by sample: what remains is how much their difference depends on the
choice of examples.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.files import read_json, write_json
from bertjax.tasks.task import Task

SAMPLES = 50  # the standard error from them has a standard error of a tenth of it

RESAMPLED_FILE = "resampled.json"  # in the folder of a trial or of an ensemble


def write_resampled(
    folder: Path,
    task: Task,
    examples: Mapping[str, Sequence[Any]],
    predictions: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
) -> None:
    """Writes {split: {metric: [SAMPLES figures]}} to a folder.

    Args:
      examples, predictions: of each dev split.
      settings: the result of `Task.tune`.
    """
    found = {
        split: _scores(task, examples[split], predictions[split], settings) for split in examples
    }
    write_json(folder / RESAMPLED_FILE, found)


def _scores(
    task: Task, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
) -> dict[str, list[float]]:
    """The figures that every sample has: one lacks the types that its examples lack."""
    number = len(examples)
    draws = np.random.default_rng(number).integers(number, size=(SAMPLES, number))
    scores = [
        task.score([examples[i] for i in draw], [predictions[i] for i in draw], settings)
        for draw in draws
    ]
    names = [name for name in scores[0] if all(name in each for each in scores)]
    return {name: [round(float(each[name]), 3) for each in scores] for name in names}


def read_resampled(folder: Path, split: str, metric: str) -> list[float] | None:
    """The figures on all samples; None if the folder has none (it is of an older version)."""
    path = folder / RESAMPLED_FILE
    if not path.exists():
        return None
    cure = "remove it; its row is then compared by its seeds alone"
    return read_json(path, cure=cure).get(split, {}).get(metric)
