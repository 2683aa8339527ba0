"""Filters of a corpus: its language, the texts of tasks, and duplicates, in this order.

They work before the vocabulary is learned. First, workers read every document and note what they
find (`bertjax.data.corpus.findings`). Then one process compares the notes and writes the verdicts,
which `bertjax.data.corpus.plan.Plan.documents` follows. They do not depend on the number of
workers. A stopped command goes on with the notes.

DIR/cleaning/ holds the notes, and:

  verdicts-00003.npy    uint8 [documents]: 0 kept, else 1 + the number of the filter that removes it
  removed.jsonl         examples of removed documents, `_EXAMPLES` for each filter
  report.json           how many documents and words went, written last
"""

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, read_json, write_json
from bertjax.base.validation import record
from bertjax.data.corpus import language_filter
from bertjax.data.corpus.contamination import MOST_DOCUMENTS
from bertjax.data.corpus.duplicates import first_of_group
from bertjax.data.corpus.filters import (
    DUPLICATES,
    FILTERS,
    KEPT,
    LANGUAGE,
    TASKS,
    VERDICTS,
    Cleaning,
)
from bertjax.data.corpus.findings import (
    keys_of_bands,
    read_notes,
    remove_notes,
    task_texts,
    write_notes,
    write_tasks,
)
from bertjax.data.corpus.ngrams import word_hashes, words
from bertjax.data.corpus.plan import Plan
from bertjax.data.corpus.source import Document

_EXAMPLES = 20
_SHOWN = 400  # characters of an example
_NAMED = 5  # languages, or files of tasks
FOLDER, REMOVED_FILE = "cleaning", "removed.jsonl"
_REPORT_FILE = "report.json"


def clean(
    directory: str | os.PathLike,
    plan: Plan,
    cleaning: Cleaning,
    *,
    texts: Callable[[str], Iterator[str]],
    workers: int,
) -> tuple[Plan, dict[str, Any]]:
    """Finds what the filters remove from the documents of a plan.

    The main process needs about 120 bytes a document. `texts` gives the texts of a file of a task.

    Returns the plan without the removed documents, and the report: the documents and words that
    were read, and those that each filter has removed. A document counts for the first filter only.

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
            report["filters"][TASKS] |= write_tasks(folder, cleaning, texts)
        write_notes(folder, plan, cleaning, fingerprint, workers)
        _decide(folder, plan, cleaning, report)
        write_json(folder / _REPORT_FILE, {"fingerprint": fingerprint, "report": report})
    remove_notes(folder)
    return cleaned, report


def _finished(folder: Path, cleaned: Plan, fingerprint: str) -> dict[str, Any] | None:
    """The report of an earlier command with the same request; None if it was not finished."""
    path = folder / _REPORT_FILE
    if not path.exists() or not all(Path(shard.verdicts).exists() for shard in cleaned.shards):
        return None
    type_ = record(fingerprint=str, report=dict)
    found = read_json(path, type_, hint="remove it: the same command makes it again")
    return found["report"] if found["fingerprint"] == fingerprint else None


def _report_of(cleaning: Cleaning) -> dict[str, Any]:
    """The report before the first document."""
    settings = {
        LANGUAGE: cleaning.languages,
        TASKS: cleaning.tasks,
        DUPLICATES: cleaning.duplicates,
    }
    filters = {name: {"documents": 0, "words": 0} for name in FILTERS if settings[name]}
    return {"documents": 0, "words": 0, "filters": filters}


def _decide(folder: Path, plan: Plan, cleaning: Cleaning, report: dict[str, Any]) -> None:
    """Writes the verdicts and the examples, and completes the report."""
    places = list(read_notes(folder, plan, "places"))
    # From here on, a document that has a place is known by its number among these.
    ends = np.cumsum([0, *map(len, places)])
    first = first_of_group(keys_of_bands(folder, plan, cleaning), int(ends[-1]))
    found = zip(ends[:-1], read_notes(folder, plan, "matches"), strict=True)
    matches = np.concatenate([each + [begin, 0] for begin, each in found])
    common = _common(first, matches)
    matches = matches[~np.isin(matches[:, 1], common)]
    verdicts = np.full(len(first), KEPT, np.uint8)
    verdicts[matches[:, 0]] = VERDICTS[TASKS]
    (clean,) = np.nonzero(verdicts == KEPT)
    _, firsts, group = np.unique(first[clean], return_index=True, return_inverse=True)
    instead = clean[firsts][group]
    repeated = clean != instead
    verdicts[clean[repeated]] = VERDICTS[DUPLICATES]

    of_shard = list(read_notes(folder, plan, "verdicts"))
    for number, its_verdicts in enumerate(of_shard):
        its_verdicts[places[number]] = verdicts[ends[number] : ends[number + 1]]
        with atomic_write(_verdicts_file(folder, number)) as file:
            np.save(file, its_verdicts)
    _count(folder, plan, of_shard, report)
    if tasks := task_texts(folder, cleaning):
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
    """The n-grams that are common phrases. Documents of a group count once."""
    pairs = np.unique(np.stack([first[matches[:, 0]], matches[:, 1]], axis=1), axis=0)
    grams, counts = np.unique(pairs[:, 1], return_counts=True)
    return grams[counts > MOST_DOCUMENTS]


def _count(
    folder: Path, plan: Plan, verdicts: Sequence[np.ndarray], report: dict[str, Any]
) -> None:
    for its_verdicts, counts in zip(verdicts, read_notes(folder, plan, "words"), strict=True):
        report["documents"] += len(counts)
        report["words"] += int(counts.sum())
        for name, found in report["filters"].items():
            removed = its_verdicts == VERDICTS[name]
            found["documents"] += int(removed.sum())
            found["words"] += int(counts[removed].sum())
    if LANGUAGE in report["filters"]:
        languages: Counter[str] = Counter()
        for found in read_notes(folder, plan, "languages"):
            languages.update(json.loads(str(found)))
        report["filters"][LANGUAGE]["found"] = languages


def _check_sources(plan: Plan, verdicts: Sequence[np.ndarray]) -> None:
    """Raises InputError if no document of a source is left."""
    left = [0] * len(plan.sources)
    removed = [Counter[int]() for _ in plan.sources]
    for shard, its_verdicts in zip(plan.shards, verdicts, strict=True):
        left[shard.source] += int((its_verdicts == KEPT).sum())
        removed[shard.source].update(its_verdicts.tolist())
    for (spec, _), count, by_filter in zip(plan.sources, left, removed, strict=True):
        if by_filter and not count:
            each = ", ".join(f"{by_filter[VERDICTS[name]]:,} by {name}" for name in FILTERS)
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
    """Writes the first removed documents of each filter; `pairs` tells what a duplicate repeats."""
    chosen = list(pairs)
    for name in (LANGUAGE, TASKS):
        found = (
            (shard, int(number))
            for shard, its_verdicts in enumerate(verdicts)
            for number in np.nonzero(its_verdicts == VERDICTS[name])[0]
        )
        chosen += islice(found, _EXAMPLES)
    read = _read(plan, {*chosen, *pairs.values()})
    tasks = task_texts(folder, cleaning)
    with atomic_write(folder / REMOVED_FILE, "w") as file:
        for shard_and_number in sorted(chosen):
            path, document = read[shard_and_number]
            example: dict[str, Any] = {
                "filter": FILTERS[verdicts[shard_and_number[0]][shard_and_number[1]] - 1],
                "file": path,
            }
            if shard_and_number in pairs:
                of_path, of_document = read[pairs[shard_and_number]]
                example |= {"of_file": of_path, "of_text": _beginning(of_document)}
            elif tasks and example["filter"] == TASKS:
                its_words = words("\n".join(document))
                found_there = tasks.find(word_hashes(its_words))
                match = next(match for match in found_there if match.gram not in common)
                phrase = its_words[match.place : match.place + match.length]
                example["task"] = cleaning.tasks[tasks.file(match.gram)].name
                example["phrase"] = " ".join(phrase)
            else:
                detected = language_filter.detected(document)
                example |= {"language": detected.name, "score": round(detected.score, 3)}
            example["text"] = _beginning(document)
            file.write(json.dumps(example, ensure_ascii=False) + "\n")


def _read(plan: Plan, places: set[tuple[int, int]]) -> dict[tuple[int, int], tuple[str, Document]]:
    """The file and the text of some documents, which are given by shard and number."""
    read = {}
    for shard in sorted({shard for shard, _ in places}):
        last = max(number for each, number in places if each == shard)
        documents = islice(plan.all_documents(plan.shards[shard]), last + 1)
        for number, (path, document) in enumerate(documents):
            if document and (shard, number) in places:
                read[shard, number] = path, document
    return read


def _beginning(document: Document) -> str:
    return "\n".join(document)[:_SHOWN]


def _verdicts_file(folder: Path, number: int) -> Path:
    return folder / f"verdicts-{number:05d}.npy"


def summary(folder: Path, report: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each filter of a report, and one that names the examples."""
    for name, found in report["filters"].items():
        counts = ", ".join(
            f"{found[unit]:,} {unit} ({found[unit] / max(1, report[unit]):.2%})"
            for unit in ("documents", "words")
        )
        most = Counter(found.get("found", {})).most_common(_NAMED)
        named = f" ({', '.join(f'{name} {count:,}' for name, count in most)})" if most else ""
        yield f"removed by {name}: {counts}{named}"
    yield f"examples of what was removed: {folder / FOLDER / REMOVED_FILE}"
