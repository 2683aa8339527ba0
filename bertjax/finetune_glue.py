"""Fine-tuning on GLUE: one task, or all of them and the leaderboard's zip."""

from pathlib import Path
from typing import Any

from bertjax import finetune
from bertjax.errors import InputError
from bertjax.files import write_json
from bertjax.fine_tuning.search import NothingScored
from bertjax.run_folder import RESULTS_FILE, read_results
from bertjax.tasks.glue import SETS, SUBMITTED, Glue, submission
from bertjax.tasks.task import TRAIN

ALL = "all"  # config.task.name: every task, each in a folder of its own


def run(config: Any, workdir: str) -> int:
    """As `bertjax.finetune.run`; for all tasks, RUN/TASK each, RUN/results.json of all, and
    RUN/submission.zip.

    Raises:
      InputError: as there; for all tasks, whatever is wrong in any file, before the first is run;
        at the end, the tasks of which every trial diverged.
    """
    if config.get("task", {}).get("name") != ALL:
        return finetune.run(config, workdir)
    configs = {name: config.copy_and_resolve_references() for name in SETS}
    for name, each in configs.items():
        each.task.name = name
        recipe, _ = finetune.begin(each, workdir and f"{workdir}/{name}")
        _check(recipe.task)
    folder, unscored = Path(workdir), []
    for name, each in configs.items():
        try:
            code = finetune.run(each, str(folder / name))
        except NothingScored as error:
            print(f"{name}: {error}: going on with the next task", flush=True)
            unscored.append(name)
        else:
            if code:
                return code
    if unscored:
        raise InputError(
            f"{folder}: every trial of {', '.join(unscored)} diverged, so there is no "
            f"{RESULTS_FILE} of all tasks and no submission.zip: give the command again with lower "
            "rates added to config.grid.learning_rate (what is done is not run again)"
        )
    write_json(folder / RESULTS_FILE, {name: read_results(folder / name) for name in SETS})
    submission({name: folder / name / "predictions" for name in SETS}, folder / "submission.zip")
    print(f"{folder / 'submission.zip'}: what the leaderboard takes")
    return 0


def _check(task: Glue) -> None:
    """Reads every file of a task."""
    wanted = {split: rows for (name, split), (_, rows) in SUBMITTED.items() if name == task.name}
    if absent := wanted.keys() - set(task.test_splits):
        raise InputError(
            f"config.data={task.data}: {task.name} has no {' and no '.join(sorted(absent))}, "
            "which the leaderboard wants predicted: complete the folder, or run one task at a time"
        )
    for split in (TRAIN, *task.dev_splits, *task.test_splits):
        rows = len(task.read(split))
        if rows != wanted.get(split, rows):
            raise InputError(
                f"config.data={task.data}: {task.name} {split} has {rows} rows, and the official "
                f"one {wanted[split]}: take GLUE's own, or run one task at a time"
            )
