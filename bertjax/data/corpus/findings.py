"""What the filters find in each document by itself: notes, a file for each shard.

Workers read the documents and write the notes, each in memory that grows by 350 bytes a document of
its shard; `bertjax.data.corpus.cleaning` compares the notes. In the folder are:

  tasks.npz             the n-grams of the tasks' texts
  found-00003.npz       the notes about one shard, until the verdicts are there

The notes about D documents, of which K are neither removed nor empty, are `verdicts` uint8 [D], so
far about the language; `words` int64 [D]; `languages`, how often each was removed, as JSON;
`places` int64 [K], the numbers of the K; their keys in each band, uint64 [K]; `matches` int64
[M, 2], the number of one of the K and an n-gram of a task in it; and `fingerprint`.
"""

import dataclasses
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.data.corpus import duplicates, language_filter
from bertjax.data.corpus.contamination import SHORTEST, TaskTexts
from bertjax.data.corpus.filters import KEPT, LANGUAGE, VERDICTS, Cleaning
from bertjax.data.corpus.ngrams import word_hashes, words
from bertjax.data.corpus.plan import Plan, PlannedShard
from bertjax.data.corpus.workers import run_jobs, stopping

_BATCH = 256  # documents
_TASKS_FILE = "tasks.npz"


def write_tasks(
    folder: Path, cleaning: Cleaning, texts: Callable[[str], Iterator[str]]
) -> dict[str, int]:
    """Writes the n-grams of the tasks, and returns how many texts were used."""
    tasks = TaskTexts.of(
        (number, text) for number, file in enumerate(cleaning.tasks) for text in texts(file.name)
    )
    if not tasks.long:
        raise InputError(
            f"--decontaminate={cleaning.tasks[0].name}: no text of {SHORTEST} words or more in "
            "these files: give the files with the texts of the tasks"
        )
    tasks.save(folder / _TASKS_FILE)
    return {"texts": tasks.long, "short_texts": tasks.short}


def task_texts(folder: Path, cleaning: Cleaning) -> TaskTexts | None:
    """What `write_tasks` wrote; None without tasks."""
    return TaskTexts.open(folder / _TASKS_FILE) if cleaning.tasks else None


def write_notes(
    folder: Path, plan: Plan, cleaning: Cleaning, fingerprint: str, workers: int
) -> None:
    """Writes the notes about all shards that have none."""
    without_shards = dataclasses.replace(plan, shards=())
    jobs = [
        _Job(folder, number, shard, without_shards, cleaning, fingerprint)
        for number, shard in enumerate(plan.shards)
        if not _notes_file(folder, number).exists()
        or _noted(folder, number, "fingerprint") != fingerprint
    ]
    sizes = [job.shard.size for job in jobs]
    if jobs:
        done = plan.size - sum(sizes)
        what = "reading for the filters"
        run_jobs(_read_shard, jobs, sizes, workers=workers, description=what, done=done)


@dataclasses.dataclass(frozen=True)
class _Job:
    """The input of `_read_shard`: one shard of a plan, which is given without its shards."""

    folder: Path
    number: int
    shard: PlannedShard
    plan: Plan
    cleaning: Cleaning
    fingerprint: str


def _read_shard(job: _Job) -> None:
    cleaning = job.cleaning
    tasks = task_texts(job.folder, cleaning)
    verdicts: list[int] = []
    counts: list[int] = []
    languages: Counter[str] = Counter()
    places: list[int] = []
    keys = [np.zeros((len(_bands(cleaning)), 0), np.uint64)]
    matches: list[tuple[int, int]] = []
    documents = (document or [] for _, document in job.plan.all_documents(job.shard))
    while batch := list(islice(documents, _BATCH)):
        kept = []
        for document in batch:
            verdict = KEPT
            if document and cleaning.languages:
                found = language_filter.detected(document)
                if not language_filter.is_in(found, cleaning.languages):
                    verdict = VERDICTS[LANGUAGE]
                    languages[found.name] += 1
            if document and not verdict:
                kept.append(document)
                places.append(len(verdicts))
            verdicts.append(verdict)
            counts.append(sum(len(paragraph.split()) for paragraph in document))
        if kept and cleaning.duplicates == duplicates.EXACT:
            keys.append(duplicates.exact_keys(kept))
        if kept and (tasks or cleaning.duplicates == duplicates.NEAR):
            hashes = [word_hashes(words("\n".join(document))) for document in kept]
            if cleaning.duplicates == duplicates.NEAR:
                keys.append(duplicates.near_keys(kept, hashes))
            if tasks:
                for number, each in enumerate(hashes, len(places) - len(kept)):
                    grams = dict.fromkeys(match.gram for match in tasks.find(each))
                    matches += [(number, gram) for gram in grams]
        if stopping():
            raise InterruptedError(f"shard {job.number}: stopped")
    notes: dict[str, Any] = {
        "verdicts": np.array(verdicts, np.uint8),
        "words": np.array(counts, np.int64),
        "languages": np.array(json.dumps(languages)),
        "places": np.array(places, np.int64),
        "matches": np.array(matches, np.int64).reshape(-1, 2),
        "fingerprint": np.array(job.fingerprint),
    }
    bands = dict(zip(_bands(cleaning), np.concatenate(keys, axis=1), strict=True))
    with atomic_write(_notes_file(job.folder, job.number)) as file:
        np.savez(file, **(notes | bands))


def _bands(cleaning: Cleaning) -> list[str]:
    count = {"": 0, duplicates.EXACT: 1, duplicates.NEAR: duplicates.BANDS}[cleaning.duplicates]
    return [f"band{number}" for number in range(count)]


def _notes_file(folder: Path, number: int) -> Path:
    return folder / f"found-{number:05d}.npz"


def _noted(folder: Path, number: int, name: str) -> np.ndarray:
    path = _notes_file(folder, number)
    try:
        with np.load(path) as arrays:
            return arrays[name]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: damaged ({error}): remove it; the same command makes it again"
        ) from error


def read_notes(folder: Path, plan: Plan, name: str) -> Iterator[np.ndarray]:
    """Yields one array of the notes about each shard, in order."""
    for number in range(len(plan.shards)):
        yield _noted(folder, number, name)


def keys_of_bands(folder: Path, plan: Plan, cleaning: Cleaning) -> Iterator[np.ndarray]:
    """Yields the keys of all shards in each band, uint64."""
    for band in _bands(cleaning):
        yield np.concatenate(list(read_notes(folder, plan, band)))


def remove_notes(folder: Path) -> None:
    """Removes the notes about all shards."""
    for file in folder.glob("found-*.npz"):
        file.unlink()
