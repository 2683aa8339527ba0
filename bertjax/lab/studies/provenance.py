"""Records in STUDY/made what a stage was made from and has written, and finds later changes."""

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertjax.base.files import read_json, sha256_of_file, write_json
from bertjax.base.limits import FREE
from bertjax.base.validation import record
from bertjax.data.corpus.shards import HELDOUT, TRAIN
from bertjax.data.corpus.store import TokenStore
from bertjax.lab.studies.files import StudyFiles
from bertjax.lab.studies.outcome import files_of
from bertjax.lab.studies.study import GRAMMAR, MASKED_TEXT, Stage, folder_of
from bertjax.runs.fine_tuning.data import digest
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.read import config_dict_of, flat, marked
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import checkpoints_folder, config_difference
from bertjax.tasks.task import Task
from bertjax.training.checkpoint import newest_metadata
from bertjax.training.hardware import AUTO

# Keys of a config that say where a stage runs and how often it logs, not what it computes. What a
# stage starts from is known by its results.
_FREE = marked(Recipe, FREE) | marked(TaskRecipe, FREE)


def made_from(stage: Stage, files: StudyFiles) -> dict[str, Any]:
    """What a stage is made from: its config, and hashes of its text, data and earlier stages."""
    config = config_dict_of(files.config(stage))
    hashes = {
        f"the results of {each.name}": _hash_of(_hashes_of_results(each, files))
        for each in stage.start
    }
    if stage.program == "pretrain":
        recipe = Recipe.from_config(config)
        corpora = {recipe.corpus, *(phase.corpus for phase in recipe.phases if phase.corpus)}
        hashes |= {f"the {split} text": _texts(corpora, split) for split in (TRAIN, HELDOUT)}
    elif stage.program == MASKED_TEXT:
        hashes[f"the {HELDOUT} text"] = _texts({(files.corpus,)}, HELDOUT)
    elif stage.program == GRAMMAR:
        pairs = [(pair.good, pair.bad) for pair in files.pairs(stage)]
        hashes["the minimal pairs"] = _hash_of(pairs)
    elif stage.program == "finetune":
        hashes |= _data(TaskRecipe.from_config(config).task)
    return {"config": config, "hashes": hashes}


def remember(stage: Stage, files: StudyFiles, origin: dict[str, Any]) -> None:
    """Records what `made_from` returned before a stage ran, and hashes of what it has written."""
    path = _path(stage, files.folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, origin | {"left": _hashes_of_results(stage, files)})


def is_remembered(stage: Stage, study: Path) -> bool:
    """Whether there is a record of what a stage was made from."""
    return _path(stage, study).exists()


def changes(stage: Stage, files: StudyFiles) -> Iterator[str]:
    """Describes each change in what a finished stage was made from, or in what it has written."""
    type_ = record(config=dict, hashes=dict[str, str], left=dict[str, str])
    known = read_json(_path(stage, files.folder), type_, hint="remove it")
    now, left = made_from(stage, files), _hashes_of_results(stage, files)
    # What a config leaves to the run stays as the run has chosen it.
    chosen = (key for key, value in flat(now["config"]).items() if value == AUTO)
    if difference := config_difference(known["config"], now["config"], (*_FREE, *chosen)):
        yield f"config.{difference}"
    for name, value in known["hashes"].items():
        if now["hashes"].get(name) != value:
            yield f"{name} changed"
    for name in sorted(known["left"].keys() | left.keys()):
        if known["left"].get(name) != left.get(name):
            yield f"{folder_of(stage, files.folder) / name} changed"


def _path(stage: Stage, study: Path) -> Path:
    return study / "made" / f"{stage.name}.json"


def _hashes_of_results(stage: Stage, files: StudyFiles) -> dict[str, str]:
    """The hash of each file in the stage's folder from which figures or weights are read."""
    folder = folder_of(stage, files.folder)
    found = {
        str(path.relative_to(folder)): sha256_of_file(path)
        for path in files_of(stage, files.folder)
        if path.exists()
    }
    if stage.program == "pretrain":
        newest = checkpoints_folder(folder)
        found[newest.name] = _hash_of(newest_metadata(newest))
    return found


def _hash_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _texts(corpora: set[tuple[str, ...]], split: str) -> str:
    return _hash_of(sorted(TokenStore.open(each, split).identity for each in corpora))


@functools.cache
def _data(task: Task) -> dict[str, str]:
    splits = (TRAIN, *task.dev_splits)  # tests may be added later
    return {f"the {split} data": digest(task.read(split)) for split in splits}
