"""Retrieval: queries, documents, and judgements of the documents that a query should find.

A collection is a folder with the files of BEIR (Thakur et al. 2021):

  corpus.jsonl      _id, title and text of each document; the title may be missing
  queries.jsonl     _id and text
  qrels/SPLIT.tsv   query-id, corpus-id and score, under a line with these names

Each of them may be replaced by a file of the user:

  documents.tsv     id and text, perhaps title; or .csv or .jsonl (see `bertjax.tasks.rows`)
  queries.tsv       id and text; or .csv or .jsonl
  qrels/SPLIT.txt   the form of TREC: query id, iteration, document id and grade, with spaces or
                    tabs between them

All files may be compressed (.gz .xz .bz2 .zst).
"""

import dataclasses
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.base.files import local_folder
from bertjax.base.validation import integer
from bertjax.tasks import official_files
from bertjax.tasks.rows import FORMATS, FileRow, read_rows

_DEFAULT_SPLIT = "test"
_DOCUMENTS = ("corpus.jsonl", *("documents" + suffix for suffix in FORMATS))
_QUERIES = tuple("queries" + suffix for suffix in FORMATS)
_TREC = "TREC's form (query id, iteration, document id, grade)"
_ONE_VERSION = "take texts and judgements of one version of the collection"

Judgements = Mapping[str, Mapping[str, int]]  # query id -> document id -> grade


@dataclasses.dataclass(frozen=True)
class RetrievalSet:
    """The queries of one split, the documents to search, and the judgements.

    Attributes:
      queries: id -> text, of the queries that have judgements, in the order of their file.
      documents: id -> text, in the order of their file; a title stands before its text, with a
        space between them. A text may be empty, as some of BEIR's FiQA are.
      judgements: query id -> document id -> grade; grades above 0 are relevant.
    """

    queries: dict[str, str]
    documents: dict[str, str]
    judgements: dict[str, dict[str, int]]


def read_retrieval(source: str) -> RetrievalSet:
    """Reads a collection, FOLDER or FOLDER:SPLIT; SPLIT is "test" if it is missing."""
    folder, split = _folder_and_split(source)
    documents = {name: _document(row) for name, row in _by_id(folder, *_DOCUMENTS)}
    queries = {name: row.text("text").strip() for name, row in _by_id(folder, *_QUERIES)}
    judgements = _judgements(folder, split, queries)
    if not judgements:
        raise InputError(f"{source}: no judgement in the split {split!r}")
    _check_documents(source, documents, judgements)
    judged = {name: text for name, text in queries.items() if name in judgements}
    if len(judged) < len(queries):
        print(
            f"{folder}: {len(queries) - len(judged):,} of {len(queries):,} queries have no "
            f"judgement in {split!r}: they are not searched",
            flush=True,
        )
    if empty := sum(not text for text in documents.values()):
        print(f"{folder}: {empty:,} of {len(documents):,} documents are empty", flush=True)
    if same := sum(name in documents for name in judged):
        print(
            f"{folder}: {same:,} of {len(judged):,} queries have the id of a document, which is "
            "not counted as found, unless it is judged relevant",
            flush=True,
        )
    return RetrievalSet(judged, documents, judgements)


def _folder_and_split(source: str) -> tuple[Path, str]:
    folder, colon, split = source.rpartition(":")
    if not colon or local_folder(source).is_dir():
        return local_folder(source), _DEFAULT_SPLIT
    if not folder or not split:
        raise InputError(f"{source}: write FOLDER:SPLIT, as in scifact:test")
    return Path(folder), split


def _by_id(folder: Path, *names: str) -> Iterator[tuple[str, FileRow]]:
    """Yields the rows of the one file of `names` with their ids."""
    seen = set()
    for row in read_rows(folder, *names):
        column = "_id" if "_id" in row.fields else "id"
        name = row.label(column)
        row.require(name not in seen, column, "as in an earlier row")
        seen.add(name)
        yield name, row


def _document(row: FileRow) -> str:
    title = row.string("title") if row.fields.get("title") is not None else ""
    return f"{title} {row.string('text')}".strip()


def _judgements(folder: Path, split: str, queries: Container[str]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for where, query, document, written in _judgement_lines(folder / "qrels", split):
        if query not in queries:
            raise InputError(f"{where}: {query!r} is not among the queries: {_ONE_VERSION}")
        if (grade := integer(written)) is None:
            raise InputError(f"{where}: the grade {written!r:.80} is not a whole number")
        judged = result.setdefault(query, {})
        if judged.setdefault(document, grade) != grade:
            raise InputError(
                f"{where}: the query {query!r} and the document {document!r} have the grade "
                f"{grade}, but {judged[document]} in an earlier line"
            )
    return result


def _check_documents(source: str, documents: Container[str], judgements: Judgements) -> None:
    """Says how many judgements are of missing documents, which stay: they count as not found."""
    judged = [name for grades in judgements.values() for name in grades]
    absent = [name for name in judged if name not in documents]
    if len(absent) == len(judged):
        raise InputError(
            f"{source}: no judged document is among the documents ({absent[0]!r} is not): "
            f"{_ONE_VERSION}"
        )
    if absent:
        print(
            f"{source}: {len(absent):,} of {len(judged):,} judgements are of documents that are "
            f"not there, such as {absent[0]!r}: the relevant ones count as not found",
            flush=True,
        )


def _judgement_lines(folder: Path, split: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields the place, query id, document id and grade of each judgement."""
    path = official_files.find(folder, f"{split}.tsv", f"{split}.txt")
    if official_files.ending(path) == ".tsv":
        for row in read_rows(folder, path.name):
            yield row.where, row.label("query-id"), row.label("corpus-id"), row.label("score")
        return
    for number, line in enumerate(official_files.lines(folder, path.name), start=1):
        where, values = f"{path} line {number}", line.split()
        if values:
            official_files.check_width(where, values, 4, _TREC)
            query, _, document, grade = values
            yield where, query, document, grade
