"""What a stage has left in its run folder: whether it is done, and its figures."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import read_json
from bertjax.lab.studies.study import EVALUATE, GRAMMAR, MASKED_TEXT, Stage, folder_of
from bertjax.runs.fine_tuning.recipe import Trial
from bertjax.runs.fine_tuning.resampling import RESAMPLED_FILE, read_resampled
from bertjax.runs.run_folder import (
    EVALUATION_FILE,
    GRAMMAR_FILE,
    MASKED_TEXT_FILE,
    RESULTS_FILE,
    SUBMISSION_FILE,
    checkpoints_folder,
    read_config,
    trial_folder,
)
from bertjax.training.checkpoint import saved_steps

_HINT = "remove it, and the same command makes it again"


class NoFigure(InputError):
    """A run that is done lacks a figure, such as that of a test file that was not there."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a row: one value for each seed.

    `resampled`, [seeds, R], is that of each seed on R samples of the same examples; None if the run
    has not written it.
    """

    values: tuple[float, ...]
    resampled: np.ndarray | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the seeds; None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


def joined(figures: list[Figure]) -> Figure:
    """The figures of runs with several seeds as one."""
    resampled = [each.resampled for each in figures if each.resampled is not None]
    values = tuple(value for figure in figures for value in figure.values)
    return Figure(values, np.concatenate(resampled) if len(resampled) == len(figures) else None)


def is_done(stage: Stage, study: Path) -> bool:
    """Whether a stage has nothing left to do."""
    folder = folder_of(stage, study)
    if stage.program == "submission":
        return (folder / SUBMISSION_FILE).exists()
    if not (folder / "config.json").exists():
        return False
    if stage.program == "pretrain":
        return last_step(folder) == read_config(folder)["total_steps"]
    if stage.program in _FILES:
        path = folder / _FILES[stage.program]
        return path.exists() and read_json(path, hint=_HINT).get("step") == last_step(folder)
    return (folder / RESULTS_FILE).exists()


def last_step(folder: Path) -> int | None:
    """The step of the newest checkpoint of a run; None if it has none."""
    steps = saved_steps(checkpoints_folder(folder))
    return steps[-1] if steps else None


# What an evaluation writes into the run that it evaluates.
_FILES = {EVALUATE: EVALUATION_FILE, MASKED_TEXT: MASKED_TEXT_FILE, GRAMMAR: GRAMMAR_FILE}


def files_of(stage: Stage, study: Path) -> list[Path]:
    """The files of a stage from which figures are read."""
    folder = folder_of(stage, study)
    if stage.program in _FILES:
        return [folder / _FILES[stage.program]]
    if stage.program == "submission":
        return [folder / SUBMISSION_FILE]
    if stage.program == "pretrain":
        return [folder / "config.json"]
    return [folder / "config.json", *folder.rglob(RESULTS_FILE), *folder.rglob(RESAMPLED_FILE)]


def read_figure(stage: Stage, name: str, study: Path) -> Figure:
    """A figure of a stage that is done, for the chosen point of the grid; or raises `NoFigure`.

    Args:
      name: "LENGTH/METRIC" of evaluation.json, "METRIC" of masked_text.json, "overall/accuracy" or
        "phenomena/NAME/accuracy" of grammar.json; "SPLIT/METRIC" of results.json, or of
        `Stage.part` of it.
    """
    folder, keys = folder_of(stage, study), name.split("/")
    path = folder / _FILES.get(stage.program, RESULTS_FILE)
    found: Any = read_json(path, hint=_HINT)
    try:
        if stage.program in _FILES:
            return Figure((_value_at(found, keys),))
        split, metric = keys
        if stage.part:
            folder, found = folder / stage.part, found[stage.part]
        return _of_trials(folder, found, split, metric)
    except (KeyError, TypeError, ValueError) as error:
        raise NoFigure(f"{path}: it has no figure {name!r}") from error


def _value_at(found: Any, keys: list[str]) -> float:
    for key in keys:
        found = found[key]
    return float(found)


def _of_trials(folder: Path, results: Mapping[str, Any], split: str, metric: str) -> Figure:
    """The figure of every seed of the chosen point of the grid; of an ensemble, its own."""
    chosen = {key: value for key, value in results["chosen"].items() if key != "seed"}
    trials = [
        trial
        for trial in results["trials"]
        if chosen and chosen.items() <= trial.items() and trial["value"] is not None
    ]
    if trials:
        names = [Trial(**chosen, seed=trial["seed"]).name for trial in trials]
        folders = [trial_folder(folder, name) for name in names]
    else:
        trials, folders = [results], [folder]
    resampled = [read_resampled(each, split, metric) for each in folders]
    values = tuple(float(trial["dev"][split][metric]) for trial in trials)
    known = all(each is not None for each in resampled)
    return Figure(values, np.array(resampled) if known else None)
