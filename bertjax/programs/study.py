"""Runs a study: all runs after a table, each as its own process; then writes the table."""

import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_choice, check_given
from bertjax.base.errors import EXIT_STOPPED, InputError
from bertjax.base.files import atomic_write, exclusive, local_folder, read_json, write_json
from bertjax.base.validation import record
from bertjax.data.corpus.store import open_tokenizer
from bertjax.lab.studies import picture, plan, table
from bertjax.lab.studies.checks import check_stage, wrong_figures
from bertjax.lab.studies.estimates import Pace, Work, measured_pace, work_of
from bertjax.lab.studies.files import StudyFiles, read_study
from bertjax.lab.studies.outcome import is_done, last_step
from bertjax.lab.studies.processes import Processes, seconds_of, stop_with_study
from bertjax.lab.studies.provenance import changes, is_remembered, made_from, remember
from bertjax.lab.studies.scales import SCALES, Scale
from bertjax.lab.studies.study import PLAN, Stage, Study, folder_of
from bertjax.programs import (
    ensemble,
    evaluate,
    finetune,
    finetune_glue,
    masked_text,
    pretrain,
    score,
)
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import GRAMMAR_FILE, check_no_corpus
from bertjax.tasks import glue
from bertjax.tasks.classification import Regression
from bertjax.tasks.probabilities import VOTES
from bertjax.tasks.task import TRAIN, Task
from bertjax.training.sharding.hosts import join_processes


def run(
    path: str,
    scale: str,
    corpus: str,
    data: str,
    workdir: str,
    only: Sequence[str] = (),
    *,
    program: str,
    at_once: int = 1,
    dry_run: bool = False,
) -> int:
    """Runs every stage of a study that is not done, and writes its table.

    STUDY gets runs/NAME for each stage, which studies in the same folder share; logs/NAME.log,
    made/NAME.json, times.json; and the table: the study's name with .txt, .json and .png.

    Args:
      scale: a name of `bertjax.lab.studies.scales.SCALES`.
      only: keys of columns; all if it is empty.
      program: the program that runs one stage: launch/study.py.

    Returns:
      0 when all is done, 1 when a stage has failed, `EXIT_STOPPED` when a signal stopped it.

    Raises:
      InputError: something cannot work; it is raised before anything is started.
    """
    study, files = _read(path, scale, corpus, data, workdir, only)
    name, stages = Path(path.partition(":")[0]).stem, study.stages()
    _check_plan(study, name, files.folder)
    seconds_of(files.folder)
    work = _checked(study, stages, files)
    done = _finished_stages(stages, files)
    waiting = [stage for stage in stages if stage.name not in done]
    pace = _pace(SCALES[scale], stages, files, at_once) if waiting else None
    text = plan.text(study, work, done, pace, SCALES[scale], at_once)
    print(text, "", sep="\n", flush=True)
    if dry_run:
        return 0

    def command(stage: Stage) -> list[str]:
        flags = dict(study=path, scale=scale, corpus=corpus, data=data, workdir=workdir)
        flags |= dict(only=",".join(only), stage=stage.name)
        return [sys.executable, program, *(f"--{key}={value}" for key, value in flags.items())]

    begin = time.time()
    with exclusive(files.folder):
        write_json(files.folder / f"{name}{PLAN}", study.as_dict())
        failed = Processes(files.folder, command, at_once).run(waiting, done)
        found = table.content(study, files.folder)
        taken = seconds_of(files.folder)
        found["scale"] = scale
        found["seconds"] = round(sum(taken.get(stage.name, 0.0) for stage in stages))
        _write(found, files.folder / name)
    print(f"\n{study.title}\n\n{table.text(found)}\n\n{files.folder / name}.txt, .json, .png")
    print(f"{time.time() - begin:,.0f} s now, {found['seconds']:,} s in all")
    if failed is None:
        print("stopped and saved; the same command goes on from there")
        return EXIT_STOPPED
    return 1 if failed else 0


def run_stage(
    path: str, scale: str, corpus: str, data: str, workdir: str, only: Sequence[str], stage: str
) -> int:
    """Runs one stage of a study in this process: the arguments are those of `run`."""
    stop_with_study()
    study, files = _read(path, scale, corpus, data, workdir, only)
    known = {each.name: each for each in study.stages()}
    check_choice("--stage", stage, known)
    if known[stage].program == "pretrain":  # the only program that runs on all hosts
        join_processes()
    origin = made_from(known[stage], files)
    code = PROGRAMS[known[stage].program](known[stage], files)
    code = code if isinstance(code, int) else 0  # an evaluation returns its figures
    if not code:
        remember(known[stage], files, origin)
    return code


def _read(
    path: str, scale: str, corpus: str, data: str, workdir: str, only: Sequence[str]
) -> tuple[Study, StudyFiles]:
    check_given("--workdir", workdir, "say where the study shall lie")
    study = read_study(path, SCALES[scale]).only(only)
    open_tokenizer(corpus)
    folder = local_folder(workdir)
    check_no_corpus(folder)
    return study, StudyFiles(path.partition(":")[0], corpus, data, folder)


# Program -> the call that runs one of its stages.
PROGRAMS: dict[str, Callable[[Stage, StudyFiles], Any]] = {
    "pretrain": lambda stage, files: pretrain.run(files.config(stage), _folder(stage, files)),
    "finetune": lambda stage, files: finetune.run(files.config(stage), _folder(stage, files)),
    "evaluate": lambda stage, files: evaluate.run(_folder(stage, files), None, **stage.settings),
    "masked_text": lambda stage, files: masked_text.run(_folder(stage, files), files.corpus),
    "grammar": lambda stage, files: _grammar(stage, files),
    "ensemble": lambda stage, files: ensemble.run(
        [_folder(run, files) for run in stage.start], _folder(stage, files), **stage.settings
    ),
    "submission": lambda stage, files: finetune_glue.submit(
        glue,
        {_task(run, files).name: folder_of(run, files.folder) for run in stage.start},
        folder_of(stage, files.folder),
    ),
}


def _grammar(stage: Stage, files: StudyFiles) -> None:
    folder = folder_of(stage, files.folder)
    found = score.run(str(folder), files.place(stage), most=stage.settings["most"])
    write_json(folder / GRAMMAR_FILE, {"step": last_step(folder), **found})


def _folder(stage: Stage, files: StudyFiles) -> str:
    return str(folder_of(stage, files.folder))


def _check_plan(study: Study, name: str, folder: Path) -> None:
    """Raises InputError if the folder has another study of this name, or another such stage."""
    stages = json.loads(json.dumps(study.as_dict()["stages"]))  # as they are in the file
    for path in sorted(folder.glob(f"*{PLAN}")):
        started = read_json(
            path, record(rows=list[str], stages=dict), hint="restore it from a copy"
        )
        if path.name == f"{name}{PLAN}" and started["rows"] != study.as_dict()["rows"]:
            raise InputError(
                f"{path}: the study began with the rows {', '.join(started['rows'])}, and now "
                f"has {', '.join(study.as_dict()['rows'])}: choose another --workdir"
            )
        for stage, stage_dict in stages.items():
            if stage in started["stages"] and started["stages"][stage] != stage_dict:
                raise InputError(
                    f"{path}: the stage {stage} began with other settings (another --scale?): "
                    "choose another --workdir, or another name for the stage"
                )


def _checked(study: Study, stages: Sequence[Stage], files: StudyFiles) -> dict[str, Work]:
    """Checks all configs and files, names all that is wrong, and returns the work of each stage."""
    wrong: dict[str, None] = {}  # in order, each once
    for stage in stages:
        try:
            check_choice("program", stage.program, PROGRAMS)
            check_stage(stage, files)
            if stage.program == "pretrain":
                Recipe.from_config(files.config(stage))
            elif stage.program == "finetune":
                wrong |= dict.fromkeys(_missing(_task(stage, files)))
            elif stage.program == "ensemble":
                if len({_task(run, files) for run in stage.start}) != 1:
                    raise InputError("its runs are of different tasks: an ensemble is of one task")
                if stage.settings["by"] == VOTES and isinstance(
                    _task(stage.start[0], files).family, Regression
                ):
                    raise InputError("settings: by='votes': numbers have no votes")
            elif stage.program == "submission":
                for run in stage.start:
                    finetune_glue.check(glue, _task(run, files))
        except InputError as error:
            wrong[f"stage {stage.name}: {error}"] = None
    wrong = wrong or dict.fromkeys(wrong_figures(study, files))
    if wrong:
        raise InputError(f"{files.study}: " + "; ".join(wrong))
    return {stage.name: work_of(stage, files) for stage in stages}


def _finished_stages(stages: Sequence[Stage], files: StudyFiles) -> set[str]:
    """The finished stages that stay; one without a record, or after a new one, runs again."""
    done: set[str] = set()
    wrong: list[str] = []
    for stage in stages:
        needed = {each.name for each in stage.start} <= done
        if needed and is_done(stage, files.folder) and is_remembered(stage, files.folder):
            done.add(stage.name)
            wrong += [f"stage {stage.name}: {change}" for change in changes(stage, files)]
    if wrong:
        raise InputError(
            f"{files.folder}: what is done no longer fits: {'; '.join(wrong)}: undo the change; or "
            "remove the folder of the first of these stages in runs/ (of an evaluation, its file), "
            "and the same command makes it again"
        )
    return done


def _task(stage: Stage, files: StudyFiles) -> Task:
    if stage.program != "finetune":
        raise InputError(f"{stage.name} is no fine-tuning")
    return TaskRecipe.from_config(files.config(stage)).task


@functools.cache
def _missing(task: Task) -> tuple[str, ...]:
    """The errors of reading each split of a task; many stages have the same task."""
    found = []
    for split in (TRAIN, *task.dev_splits, *task.test_splits):
        try:
            task.read(split)
        except InputError as error:
            found.append(str(error))
    return tuple(found)


def _pace(scale: Scale, stages: Sequence[Stage], files: StudyFiles, at_once: int) -> Pace | None:
    """The pace of the scale's chips, or else of those here, in steps of the first pre-training."""
    if scale.rate:
        return Pace(scale.rate, start=0.0)
    first = next((stage for stage in stages if stage.program == "pretrain"), None)
    return measured_pace(first, files, at_once) if first else None


def _write(found: dict[str, Any], path: Path) -> None:
    write_json(path.with_suffix(".json"), found)
    with atomic_write(path.with_suffix(".txt"), "w") as file:
        file.write(f"{found['title']}\n\n{table.text(found)}\n")
    picture.draw(found, path.with_suffix(".png"))
