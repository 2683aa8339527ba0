"""Texts that belong together: how each kind of source is read.

  DIR, FILE          a table (`bertjax.tasks.rows`); of a folder or a data set of the hub, its
                     training and dev files (`bertjax.tasks.table_files`). A row has a query, its
                     right passage, perhaps wrong ones and scores; or a text and its label, and
                     then texts with the same label belong together
  titles:SOURCE      the first line of each document, and its second: title and first paragraph
  neighbours:SOURCE  each line of a document, and the next
  repeated:SOURCE    each line with itself, of which dropout makes two vectors (SimCSE, arXiv
                     2104.08821)

SOURCE is one of `bertjax.data.corpus.sources`, as "text:wiki/*.txt".
"""

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertjax.base.errors import InputError
from bertjax.data.corpus import sources
from bertjax.tasks import official_files, table_files
from bertjax.tasks.rows import FileRow, read_files

TRAIN, DEV = "train", "dev"
NONE = -1  # the number of a passage that is not there


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of a table's columns.

    Attributes:
      query, passage: a text, and the one that belongs to it.
      negative: wrong passages: a text or a list of them; also the columns negative_1, negative_2
        and so on.
      score: how alike they are: a number, or a list of one for each passage.
      text, label: a text, and what it shares with others. Used where there is no query.
    """

    query: str = "query"
    passage: str = "passage"
    negative: str = "negative"
    score: str = "score"
    text: str = "text"
    label: str = "label"


@dataclasses.dataclass(frozen=True)
class Example:
    """A query and its passages, of which the first is the right one, and their scores, if any."""

    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of one source, as numbers of texts.

    Attributes:
      query: int32 [N].
      passage: int32 [N, K]; -1 where an example has fewer than K.
      scores: float32 [N, K], or None.
      labels: int32 [N]; then `passage` is empty, and a passage is drawn among the queries with the
        same label. None: each example has its passages.
    """

    name: str
    query: np.ndarray
    passage: np.ndarray
    scores: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.query)

    @property
    def width(self) -> int:
        """The most passages of a query."""
        return 1 if self.labels is not None else self.passage.shape[1]


class Texts:
    """All texts of a data set; equal texts have one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text, a new one if it is new."""
        return self._numbers.setdefault(text, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def all(self) -> list[str]:
        """Every text, by its number."""
        return list(self._numbers)


Problem = Callable[[Sequence[float]], str]  # of the scores of a query's passages; "": none


def read_examples(
    spec: str, columns: Columns, texts: Texts, problem_of: Problem = lambda scores: ""
) -> Examples:
    """The training examples of a source, whose texts `texts` gets; `problem_of` judges scores."""
    made, _, source = spec.partition(":")
    if made in _PAIRINGS:
        rows = (Example(a, (b,)) for a, b in _pairs_of_source(made, source))
        return _numbered(spec, rows, texts)
    table = _table(spec, TRAIN)
    if columns.query in table[0].fields or columns.label not in table[0].fields:
        return _numbered(spec, (_example(row, columns, problem_of) for row in table), texts)
    return _labelled(spec, table, columns, texts)


def read_dev(spec: str, columns: Columns) -> list[Example]:
    """The examples of the dev split of a source; [] if it has none."""
    if not has_dev(spec):
        return []
    rows = _table(spec, DEV)
    if columns.query not in rows[0].fields and columns.label in rows[0].fields:
        return _pairs_of_labels(rows, columns)
    return [_example(row, columns) for row in rows]


def has_dev(spec: str) -> bool:
    """Whether a source is a folder with a dev file."""
    return table_files.has_split(_folder(spec), spec, DEV)


@functools.cache  # the hub is asked once
def _folder(spec: str) -> Path:
    return table_files.folder_of(spec, {TRAIN: "", DEV: ""})


def _table(spec: str, split: str) -> list[FileRow]:
    path = _folder(spec)
    if path.is_dir():
        files = table_files.split_files(path, spec, split, "")
    elif official_files.exists(path.parent, path.name):
        files = [official_files.find(path.parent, path.name)]
    else:
        raise InputError(
            f"{spec}: no such folder or file: name one, or write {', '.join(_PAIRINGS)}:SOURCE, "
            "such as titles:text:wiki/*.txt"
        )
    return official_files.nonempty(read_files(files), files[0])


def _example(row: FileRow, columns: Columns, problem_of: Problem = lambda scores: "") -> Example:
    passages = [row.text(columns.passage), *_negatives(row, columns.negative)]
    if columns.score not in row.fields:
        return Example(row.text(columns.query), tuple(passages))
    scores = row.reals(columns.score)
    problem = "give a list of one number for each, the right one first"
    problem = f"{len(scores)} for {len(passages)} passages: {problem}"
    row.require(len(scores) == len(passages), columns.score, problem)
    if problem := problem_of(scores):
        score = row.value(columns.score)
        raise InputError(f"{row.where}: {columns.score!r} is {score!r:.80}: {problem}")
    return Example(row.text(columns.query), tuple(passages), scores)


def _negatives(row: FileRow, name: str) -> Iterator[str]:
    """The texts in a column, and in those with a number after its name, without empty cells."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    for column in (name, *itertools.takewhile(row.fields.__contains__, numbered)):
        value = row.fields.get(column)
        if isinstance(value, list):
            texts = row.texts(column)
            row.require(all(map(str.strip, texts)), column, "with an empty text: leave it out")
            yield from texts
        elif value not in (None, ""):
            yield row.text(column)


def _numbered(name: str, examples: Iterable[Example], texts: Texts) -> Examples:
    queries: list[int] = []
    passages: list[list[int]] = []
    scores: list[tuple[float, ...]] = []
    for example in examples:
        queries.append(texts.number(example.query))
        passages.append([texts.number(text) for text in example.passages])
        scores.append(example.scores)
    if not queries:
        raise InputError(f"{name}: no two texts in it that belong together")
    scored = sum(map(bool, scores))
    if scored not in (0, len(scores)):
        raise InputError(
            f"{name}: {scored:,} of {len(scores):,} examples have scores: give all or none"
        )
    width = max(map(len, passages))
    return Examples(
        name,
        np.array(queries, np.int32),
        _filled(passages, width, NONE, np.int32),
        _filled(scores, width, 0, np.float32) if scored else None,
    )


def _filled(rows: Sequence[Sequence[float]], width: int, empty: float, dtype: type) -> np.ndarray:
    result: np.ndarray = np.full((len(rows), width), empty, dtype)
    for row, values in zip(result, rows, strict=True):
        row[: len(values)] = values
    return result


def _labelled(name: str, rows: list[FileRow], columns: Columns, texts: Texts) -> Examples:
    labels: dict[str, int] = {}
    each = [labels.setdefault(row.label(columns.label), len(labels)) for row in rows]
    if len(labels) == 1:
        raise InputError(f"{name}: every row has the label {next(iter(labels))!r}")
    counts = np.bincount(each)
    if counts.min() < 2:
        alone = list(labels)[int(counts.argmin())]
        raise InputError(
            f"{name}: only one text has the label {alone!r}: leave it out, or add a second"
        )
    query = np.array([texts.number(row.text(columns.text)) for row in rows], np.int32)
    return Examples(name, query, query[:, None][:, :0], labels=np.array(each, np.int32))


def _pairs_of_labels(rows: list[FileRow], columns: Columns) -> list[Example]:
    """Each text with the next one of its label, in a circle."""
    of_label = defaultdict(list)
    for row in rows:
        of_label[row.label(columns.label)].append(row.text(columns.text))
    return [
        Example(text, (group[(i + 1) % len(group)],))
        for group in of_label.values()
        for i, text in enumerate(group)
        if len(group) > 1
    ]


def _titles(document: list[str]) -> list[tuple[str, str]]:
    return [(document[0], document[1])] if len(document) > 1 else []


def _repeated(document: list[str]) -> list[tuple[str, str]]:
    return [(line, line) for line in document]


# Paragraphs of a document -> pairs of texts.
_PAIRINGS = {
    "titles": _titles,
    "neighbours": lambda document: list(itertools.pairwise(document)),
    "repeated": _repeated,
}


def _pairs_of_source(pairing: str, spec: str) -> Iterator[tuple[str, str]]:
    source = sources.open_source(spec, installed_docs=Path())
    for *_, document in source.all_documents():
        if document:
            yield from _PAIRINGS[pairing](document)
