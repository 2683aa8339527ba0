"""Makes one model of several fine-tuned runs of a task (section 4.2, Table 2: "ensemble")."""

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.checks import check_given
from bertjax.base.errors import InputError
from bertjax.base.files import exclusive, inside, local_folder, sha256_of_file, write_json
from bertjax.interop.pretrained import Pretrained
from bertjax.runs.fine_tuning.data import digest, read_examples
from bertjax.runs.fine_tuning.fine_tuned import OneModel
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.fine_tuning.resampling import RESAMPLED_FILE, write_resampled
from bertjax.runs.fine_tuning.scores import digests, in_a_line, scored
from bertjax.runs.fine_tuning.task_family import task_family_of
from bertjax.runs.run_folder import (
    ENSEMBLE,
    PREDICTIONS_FOLDER,
    RESULTS_FILE,
    check_same_config,
    read_ensemble,
    read_results,
    read_trial,
)
from bertjax.runs.source import TasksRun, TunedRun, open_source
from bertjax.tasks.classification import ANSWERS, Regression
from bertjax.tasks.probabilities import VOTES
from bertjax.tasks.table import LOSS, SOFT
from bertjax.tasks.task import TRAIN, Task


class _Member(NamedTuple):
    """A finished run of fine-tuning; `data` has the hash of each split when the trial was run."""

    run: str
    task: Task
    model: Pretrained
    identity: str
    trial: str
    data: dict[str, str]
    init_from: str


def run(runs: Sequence[str], workdir: str, by: str) -> None:
    """Combines, scores and writes the predictions of runs; a finished ensemble is only printed.

    The runs' encoders and vocabularies may differ. ENSEMBLE gets config.json, predictions/,
    resampled.json and results.json, in which `trials` are the members. The models stay in the runs.

    Raises:
      InputError: runs that cannot be one model, or a folder that holds something else; it is
        raised before anything is computed.
    """
    check_given("--workdir", workdir, "say where the ensemble shall lie")
    folder, paths = local_folder(workdir), _distinct(runs)
    config_dict = {ENSEMBLE: {"by": by, "runs": paths}}
    check_same_config(folder, config_dict, free=())
    members = [_member(path) for path in paths]
    task = _common_task(members)
    if by == VOTES and isinstance(task.family, Regression):
        raise InputError(f"--by={VOTES}: {task.name} predicts numbers, which have no votes")
    examples = read_examples(task)
    data = {split: digest(some) for split, some in examples.items()}
    _check_data(members, data, task)

    about = {
        "task": task.name,
        "metric": task.metric,
        "chosen": {"by": by},
        "init_from": ", ".join(dict.fromkeys(member.init_from for member in members)),
        "summary": [],
        "data": data,
    }
    with exclusive(folder):
        write_json(folder / "config.json", config_dict)
        results = _finished(folder, about, members)
        if results is None:
            results = _predict_and_combine(folder, about, members, task, examples)
    print(f"{task.name}: {task.metric} on dev")
    for member in results["trials"]:
        print(f"  {member['run']}: {in_a_line(member)}")
    print(f"together, by {by}: {in_a_line(results)}")
    print(f"{folder}: {RESULTS_FILE}, predictions/")


# ---------------------------------------------------------------------------- the members


def _distinct(runs: Sequence[str]) -> list[str]:
    """The absolute paths of the runs, so that the ensemble can be used from any folder."""
    if len(runs) < 2:
        raise InputError(f"--runs={','.join(runs)}: name two runs or more, with commas between")
    paths = [os.path.realpath(local_folder(run)) for run in runs]
    (path, count), *_ = Counter(paths).most_common(1)
    if count > 1:
        raise InputError(f"--runs: {path} is named {count} times: name each run once")
    return paths


def _member(run: str) -> _Member:
    opened = open_source(run)
    if not isinstance(opened, TunedRun | TasksRun):
        raise InputError(f"{run}: not a run of fine-tuning: name folders of launch/finetune.py")
    task = TaskRecipe.from_config(opened.config).task
    model = opened.weights()
    results = read_results(Path(run))
    trial = inside(Path(run) / "trials", model.task.get("trial"), f"{run}: its model")
    data = read_trial(trial)["data"]
    return _Member(run, task, model, model.identity, trial.name, data, results["init_from"])


def _common_task(members: Sequence[_Member]) -> Task:
    first, *others = members
    for member in others:
        if type(member.task) is not type(first.task):
            raise InputError(
                f"{member.run}: its task is {member.task.name}, that of {first.run} is "
                f"{first.task.name}: an ensemble is of one task"
            )
        for field in dataclasses.fields(first.task):
            value, first_value = (getattr(each.task, field.name) for each in (member, first))
            # The data may lie elsewhere, and may have been learned in another way.
            if field.name not in ("data", *ANSWERS, *LOSS, *SOFT) and value != first_value:
                raise InputError(
                    f"{member.run}: config.task.{field.name} is {value!r}, in {first.run} it is "
                    f"{first_value!r}: an ensemble is of one task"
                )
    return first.task


def _check_data(members: Sequence[_Member], data: dict[str, str], task: Task) -> None:
    """Raises InputError for a member that learned from other data or has other classes."""
    dev = task.dev_splits[0]
    for member in members:
        for what, split in (("train", TRAIN), ("dev", dev)):
            if member.data.get(what) != data[split]:
                raise InputError(
                    f"{member.run}: was run with another {what} than is in {task.data} (its "
                    "content differs): name runs of the same data"
                )
        family, _ = task_family_of(member.model)
        if family.classes != task.family.classes:
            raise InputError(
                f"{member.run}: its classes are {', '.join(family.classes)}, in this order; those "
                f"of the data are {', '.join(task.family.classes)}"
            )


# --------------------------------------------------------------------------- the ensemble


def _finished(
    folder: Path, about: dict[str, Any], members: Sequence[_Member]
) -> dict[str, Any] | None:
    """The results of an earlier command, if they and the files next to them are still valid."""
    if not (folder / RESULTS_FILE).exists():
        return None
    results = read_ensemble(folder)
    known = {each["run"]: each["identity"] for each in results["trials"]}
    for member in members:
        if known.get(member.run) != member.identity:
            raise InputError(
                f"{folder} was made with another model of {member.run}, which was fine-tuned "
                "further since: choose another --workdir"
            )
    valid = all(results[key] == value for key, value in about.items())
    valid = valid and results["predictions"] == digests(folder / PREDICTIONS_FOLDER)
    resampled = folder / RESAMPLED_FILE
    valid = valid and resampled.is_file() and sha256_of_file(resampled) == results.get("resampled")
    return results if valid else None


def _predict_and_combine(
    folder: Path,
    about: dict[str, Any],
    members: Sequence[_Member],
    task: Task,
    examples: dict[str, list[Any]],
) -> dict[str, Any]:
    """Predicts with each member, combines the predictions, and writes all but the config."""
    splits = (*task.dev_splits, *task.test_splits)
    found, scores = [], []
    for member in members:
        model = OneModel(member.model)
        print(model.summary, flush=True)
        predictions = {
            split: model.predict(examples[split], split, f"predicting {split}") for split in splits
        }
        found.append(predictions)
        known = {name: getattr(member, name) for name in ("run", "trial", "identity", "init_from")}
        scores.append(known | scored(task, examples, predictions))
    combined = {
        split: task.family.combine([each[split] for each in found], about["chosen"]["by"])
        for split in splits
    }
    result = scored(task, examples, combined)
    output = folder / PREDICTIONS_FOLDER
    output.mkdir(exist_ok=True)
    (folder / RESULTS_FILE).unlink(missing_ok=True)  # it is out of date
    dev = {split: examples[split] for split in task.dev_splits}
    write_resampled(folder, task, dev, combined, result["settings"])
    for split in splits:
        task.write(output, split, examples[split], combined[split], result["settings"])
    results = about | {
        **{key: result[key] for key in ("dev", "settings", "degenerate")},
        "trials": scores,
        "predictions": digests(output),
        "resampled": sha256_of_file(folder / RESAMPLED_FILE),
    }
    write_json(folder / RESULTS_FILE, results)
    return results
