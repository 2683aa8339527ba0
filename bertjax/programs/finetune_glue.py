"""Fine-tunes on all tasks of GLUE or of SuperGLUE, and writes the leaderboard's zip file."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.programs import finetune_task
from bertjax.runs.fine_tuning.job import begin
from bertjax.runs.fine_tuning.search import NothingScored
from bertjax.runs.preflight import check_devices, check_programs
from bertjax.runs.run_folder import (
    PREDICTIONS_FOLDER,
    RESULTS_FILE,
    SUBMISSION_FILE,
    check_no_corpus,
    read_results,
)
from bertjax.tasks import glue, superglue
from bertjax.tasks.task import TRAIN
from bertjax.training.sharding.hosts import from_first, raise_together, say

BENCHMARKS = {"glue": glue, "superglue": superglue}  # by the kind of their tasks


def run(config: Any, workdir: str, hosts: int | None = None, chips: int | None = None) -> int:
    """Fine-tunes on each task as `bertjax.programs.finetune_task`; the config's task is not used.

    RUN gets a folder of each task's name, results.json and `SUBMISSION_FILE`. Errors in any file
    are raised before the first task is run; tasks in which every trial diverged are named at the
    end. The arguments, the result and the errors are those of `bertjax.programs.finetune.run`.
    """
    check_programs(hosts)
    check_devices(chips)
    benchmark = BENCHMARKS[config.task.kind]
    configs = {name: config.copy_and_resolve_references() for name in benchmark.SETS}
    with raise_together():
        for name, task_config in configs.items():
            task_config.task.name = name
            recipe, _ = begin(task_config, workdir and f"{workdir}/{name}")
            check(benchmark, recipe.task)
        folder = Path(workdir)
        check_no_corpus(folder)
    unscored = []
    for name, task_config in configs.items():
        try:
            code = finetune_task.run(task_config, str(folder / name))
        except NothingScored as error:
            say(f"{name}: {error}: going on with the next task")
            unscored.append(name)
        else:
            if code:
                return code
    if unscored:
        raise InputError(
            f"{folder}: every trial of {', '.join(unscored)} diverged, so there is no "
            f"{RESULTS_FILE} of all tasks and no {SUBMISSION_FILE}: repeat the command with lower "
            "rates added to config.grid.learning_rate (finished trials are not run again)"
        )

    def finish() -> None:
        runs = {name: folder / name for name in configs}
        write_json(folder / RESULTS_FILE, {name: read_results(run) for name, run in runs.items()})
        submit(benchmark, runs, folder)

    from_first(finish)
    return 0


def submit(benchmark: ModuleType, runs: Mapping[str, Path], folder: Path) -> None:
    """Writes the leaderboard's zip file of each task's run into a folder, which it makes."""
    predicted = {name: run / PREDICTIONS_FOLDER for name, run in runs.items()}
    folder.mkdir(parents=True, exist_ok=True)
    benchmark.submission(predicted, folder / SUBMISSION_FILE)
    print(f"{folder / SUBMISSION_FILE}: the file for the leaderboard", flush=True)


def check(benchmark: ModuleType, task: Any) -> None:
    """Raises InputError if a file of a task has an error, or is not that of the leaderboard."""
    submitted = benchmark.SUBMITTED.items()
    wanted = {split: rows for (name, split), (_, rows) in submitted if name == task.name}
    if absent := wanted.keys() - set(task.test_splits):
        raise InputError(
            f"config.data={task.data}: {task.name} has no {' and no '.join(sorted(absent))}, "
            "which the leaderboard wants predicted: complete the folder, or run one task at a time"
        )
    for split in (TRAIN, *task.dev_splits, *task.test_splits):
        rows = task.rows(task.read(split))
        if rows != wanted.get(split, rows):
            raise InputError(
                f"config.data={task.data}: {task.name} {split} has {rows} rows, but the official "
                f"file has {wanted[split]}: use the official file, or run one task at a time"
            )
