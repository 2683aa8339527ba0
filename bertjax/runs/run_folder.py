"""The files of a run folder: config.json, checkpoints/, results.json."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import read_json
from bertjax.base.validation import record
from bertjax.data.corpus.manifest import is_corpus
from bertjax.models.encoders.renames import ALL_RENAMES
from bertjax.runs.read import flat, without
from bertjax.training.checkpoint import Checkpoints, newest_metadata
from bertjax.training.metrics_log import METRICS_FILE

EVALUATION_FILE = "evaluation.json"  # what launch/evaluate.py found
GRAMMAR_FILE = "grammar.json"  # what a study found by launch/score.py
MASKED_TEXT_FILE = "masked_text.json"  # what launch/evaluate.py --same_text found
# Of a run of fine-tuning: the best trial's model, as transformers loads it, or its parameters if
# transformers has no such model; its predictions; and its results.
MODEL_FOLDER = "model"
PARAMETERS_FOLDER = "parameters"
PREDICTIONS_FOLDER = "predictions"
RESULTS_FILE = "results.json"
# Of a run over fixed features: the tagger of a choice of layers, in RUN/CHOICE.
TAGGER_FOLDER = "tagger"
SUBMISSION_FILE = "submission.zip"  # of runs of all tasks of GLUE or SuperGLUE
ENSEMBLE = "ensemble"  # the section in the config of an ensemble of such runs
# Files and folders that only a run makes, and always after its config.json.
_LEFT_BY_RUNS = (METRICS_FILE, "trials", "activations")
# The fields of the results of a run, of a trial, and of an ensemble of runs.
_NAMES = dict(task=str, metric=str, init_from=str, summary=list)
_OF_RUN = record(**_NAMES, degenerate=str | None, dev=dict, settings=dict, chosen=dict, trials=list)
_OF_TRIAL = record(dev=dict, settings=dict, data=dict, value=float | None, degenerate=str | None)
_SCORED = dict(dev=dict[str, dict[str, float]], degenerate=str)
_OF_MEMBER: Any = record(**_SCORED, run=str, identity=str)
_OF_ENSEMBLE = record(
    **_NAMES,
    **_SCORED,
    settings=dict[str, float | dict[str, float]],
    chosen=record(by=str),
    data=dict[str, str],
    trials=list[_OF_MEMBER],
    predictions=dict[str, str],
)


def source_of(name: str | Path) -> tuple[str, int | None]:
    """Splits "RUN@STEP" into ("RUN", STEP); "RUN" without a step becomes ("RUN", None)."""
    found = re.fullmatch(r"(.+)@(\d{1,10})", str(name), re.DOTALL)
    return (found[1], int(found[2])) if found else (str(name), None)


def checkpoints_folder(run: str | Path) -> Path:
    """The folder of a run's checkpoints."""
    return path_of(run) / "checkpoints"


def checkpoints_of(run: str | Path, **options: Any) -> Checkpoints:
    """The checkpoints of a run, also of one whose parameters had other paths when it was saved."""
    return Checkpoints(checkpoints_folder(run), renames=ALL_RENAMES, **options)


def trial_folder(run: Path, name: str) -> Path:
    """The folder of a trial of a run of fine-tuning."""
    return run / "trials" / name


def read_config(run: str | Path) -> dict[str, Any]:
    """The config that a run was started with; InputError: it is no run folder, or is damaged."""
    config = recorded_config(run)
    check_run(run, config)
    return config


def check_run(run: str | Path, config: Mapping[str, Any]) -> None:
    """Raises InputError if the config.json of a folder is not that of a run; {}: it has none."""
    if not config:
        raise InputError(f"{run}: not a run: it has no config.json")
    if "model_type" in config or "architectures" in config:
        raise InputError(
            f"{run}: not a run, but a model as transformers has it: where a program takes such "
            f"models, name it hf:{run}"
        )


def recorded_config(run: str | Path) -> dict[str, Any]:
    """The same; {} if neither config.json nor a checkpoint has it. Raises as `read_config`."""
    return next(_recorded(checked_path(run)), {})


def _recorded(run: Path) -> Iterator[dict[str, Any]]:
    """Yields the config of a run from each place that has it: config.json, and a checkpoint."""
    path = run / "config.json"
    if path.exists():
        hint = "restore it from a copy, or remove it if the run has checkpoints/, which contain it"
        yield read_json(path, hint=hint)
    saved = newest_metadata(checkpoints_folder(run))
    if "config" in saved:
        yield saved["config"]


def is_of_tasks(config: Mapping[str, Any]) -> bool:
    """Whether a config is of fine-tuning: of one task, or of several together."""
    return "task" in config or "tasks" in config


def read_results(run: Path) -> dict[str, Any]:
    """The results.json of a run of fine-tuning; raises InputError if it is missing or damaged."""
    return _read_results(run, _OF_RUN)


def read_trial(folder: Path) -> dict[str, Any]:
    """The results.json of one of its trials; raises as `read_results`."""
    return _read_results(folder, _OF_TRIAL)


def read_ensemble(folder: Path) -> dict[str, Any]:
    """The results.json of an ensemble; raises as `read_results`."""
    return _read_results(folder, _OF_ENSEMBLE)


def _read_results(folder: Path, fields: Any) -> dict[str, Any]:
    try:
        hint = "remove it, and the same command makes it again"
        return read_json(folder / RESULTS_FILE, fields, hint=hint)
    except FileNotFoundError as error:
        raise InputError(f"{folder}: it is not finished: start it again") from error


def check_no_corpus(workdir: Path) -> None:
    """Raises InputError if a folder for a run or a study holds a corpus."""
    if is_corpus(workdir):
        raise InputError(
            f"{workdir}: holds a corpus, which is what runs read (config.corpus): choose another "
            "--workdir"
        )


def check_same_config(
    run: Path,
    config_dict: Mapping[str, Any],
    free: Sequence[str],
    read: Callable[[Mapping[str, Any]], object] | None = None,
) -> None:
    """Raises InputError unless a config is the one with which the run in a folder was started.

    Args:
      free: the keys, or names in them, that may differ.
      read: makes the recipe of a config. With it, the config may have keys that the run's version
        of bertjax did not know yet, if their values change nothing.
    """
    check_no_corpus(run)
    recorded = list(_recorded(run))
    left = [name for name in _LEFT_BY_RUNS if (run / name).exists()]
    if not recorded and (left or newest_metadata(checkpoints_folder(run))):
        raise InputError(
            f"{run}: holds what a run left ({', '.join(left) or 'checkpoints'}), and not its "
            "config.json: restore that from a copy, or choose another --workdir"
        )
    for started in recorded:
        if difference := config_difference(started, config_dict, free, read):
            raise InputError(
                f"{run} holds a run with another config: {difference}: choose another --workdir, "
                "or the config it was started with"
            )


def config_difference(
    started: Mapping[str, Any],
    config_dict: Mapping[str, Any],
    free: Sequence[str],
    read: Callable[[Mapping[str, Any]], object] | None = None,
) -> str:
    """Describes the first key that differs from the config that a run was started with; or ""."""
    before, now = flat(started), flat(config_dict)
    differ = [
        key
        for key in sorted(before.keys() | now.keys())
        if not {key, *key.split(".")} & set(free) and before.get(key) != now.get(key)
    ]
    if read and differ and not before.keys() & set(differ):
        if read(without(config_dict, differ)) == read(config_dict):
            return ""
    return "".join(f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in differ[:1])
