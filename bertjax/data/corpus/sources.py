"""The sources of text: how each kind is read, and how it is cut into ranges.

  text:GLOB              a blank line ends a document, a line is a paragraph
  lines:GLOB             a line is a document
  jsonl:GLOB#field       a line is a JSON object, its field a document
  parquet:GLOB#column    a row is a document
  tfds:NAME/SPLIT#feature    tensorflow-datasets, read without TensorFlow
  installed-docs         see `bertjax.data.corpus.installed_docs`
  parallel:A|B           pairs of a text and its translation: see `bertjax.data.corpus.parallel`

A code before a source names its language: "sw=text:swahili/*.txt". That of parallel texts
names both: "en-sw=parallel:a.en|a.sw".

In a field, a row or an example, newlines separate paragraphs. Files of lines may be compressed (.gz
.xz .bz2 .zst). A file or a glob may be an address that fsspec reads, such as
"text:hf://datasets/USER/NAME/*.txt.gz" or "jsonl:s3://BUCKET/*.jsonl#text". All sources are read in
bounded memory.

A source is cut into ranges by sizes alone, so the cut does not depend on the number of readers.
Each document belongs to exactly one range.
"""

import glob
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.data.corpus import tfds
from bertjax.data.corpus.json_lines import JsonLines
from bertjax.data.corpus.languages import PARALLEL, check_languages, split_language
from bertjax.data.corpus.line_files import (
    MAX_DOCUMENT_BYTES,
    SKIP_HINT,
    LineFiles,
    decoded_line,
    files,
    is_blank,
    lines,
    not_text,
)
from bertjax.data.corpus.parallel import open_parallel
from bertjax.data.corpus.parquet_files import is_text, open_parquet
from bertjax.data.corpus.source import Document, Extent, Range, Skip, Source, paragraphs
from bertjax.data.corpus.weights import check_weights, split_weight

KINDS = (
    "text:GLOB, lines:GLOB, jsonl:GLOB#field, parquet:GLOB#column, tfds:NAME/SPLIT#feature, "
    "installed-docs, parallel:A|B"
)
INSTALLED_DOCS = "installed-docs"


def parse_sources(specs: list[str]) -> list[tuple[str, float | None]]:
    """Splits each source into (spec, weight); either all sources have a weight or none has."""
    if not specs:
        raise InputError(f"--source is missing: give one or more of {KINDS}.")
    names, weights = zip(*map(split_weight, specs), strict=True)
    check_weights(names, weights)
    check_languages(names)
    repeated = [name for number, name in enumerate(names) if name in names[:number]]
    if repeated:
        raise InputError(f"--source={repeated[0]} is given twice: use @WEIGHT to weigh sources.")
    return list(zip(names, weights, strict=True))


def open_source(spec: str, installed_docs: Path) -> Source:
    """Opens the source that `spec` names; `installed_docs` is that source as a file."""
    _, spec = split_language(spec)
    if spec == INSTALLED_DOCS:
        return _Text(glob.escape(str(installed_docs)))
    format_, colon, rest = spec.partition(":")
    if colon and rest and format_ in ("text", "lines"):
        return (_Text if format_ == "text" else _Lines)(rest)
    if colon and rest and format_ == PARALLEL:
        return open_parallel(rest)
    readers: dict[str, Callable[[str, str], Source]]
    readers = {"jsonl": JsonLines, "parquet": _Parquet, "tfds": _Tfds}
    if format_ not in readers:
        raise InputError(f"--source={spec}: not one of {KINDS}.")
    place, _, field = rest.rpartition("#")
    if not place or not field:
        raise InputError(f"--source={spec}: write {format_}:...#NAME, where NAME holds the text.")
    return readers[format_](place, field)


class _Text(LineFiles):
    """A document belongs to the range in which the blank line before it begins."""

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        path, stop = range_.path, self.stop(range_)
        is_in_range = range_.start == 0
        decodable = True
        document: Document = []
        size = 0
        for offset, line in lines(path, range_.start):
            if is_blank(line):
                if document or not decodable:
                    yield document if decodable else None
                document, decodable, size = [], True, 0
                if offset >= stop:
                    return
                is_in_range = True
            elif is_in_range:
                size += len(line)
                if size > MAX_DOCUMENT_BYTES:
                    raise InputError(
                        f"{path}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB is not "
                        f"ended before byte {offset}: put a blank line between documents."
                    )
                text = decoded_line(line, path, offset, skip)
                decodable = decodable and text is not None
                document.append((text or "").strip())
        if document or not decodable:
            yield document if decodable else None


class _Lines(LineFiles):
    """Text files in which each line is a document; a line belongs to the range it begins in."""

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        for offset, line in self.lines(range_):
            text = decoded_line(line, range_.path, offset, skip)
            yield None if text is None else paragraphs(text)


def _decoded(value: Any, where: str, skip: Skip) -> Document | None:
    if isinstance(value, str):
        return paragraphs(value)
    if value is None and Skip.NULLS in skip:
        return None
    if not isinstance(value, bytes):
        raise InputError(f"{where}: {not_text(value)}")
    try:
        return paragraphs(value.decode("utf-8"))
    except UnicodeDecodeError as error:
        if Skip.UNDECODABLE in skip:
            return None
        raise InputError(
            f"{where}: not UTF-8 at its byte {error.start} ({error.reason}). {SKIP_HINT}"
        ) from error


# ------------------------------------------------------------------ records of a library


class _Parquet(Source):
    """One column of Parquet files, cut by row groups."""

    def __init__(self, pattern: str, column: str):
        self._pattern, self._column = pattern, column

    def extents(self) -> list[Extent]:
        extents = []
        for path, _, version in files(self._pattern):
            with open_parquet(path) as file:
                schema, metadata = file.schema_arrow, file.metadata
                rows = metadata.num_rows
                if self._column not in schema.names:
                    names = ", ".join(schema.names)
                    raise InputError(f"{path}: no column {self._column!r}; it has {names}.")
                dtype = schema.field(self._column).type
                if not is_text(dtype):
                    raise InputError(f"{path}: column {self._column!r} is {dtype}, not text.")
                index = schema.names.index(self._column)
                sizes = [
                    metadata.row_group(group).column(index).total_uncompressed_size
                    for group in range(metadata.num_row_groups)
                ]
            if rows:
                extents.append(Extent(path, len(sizes), sum(sizes), version=version))
        if not extents:
            raise InputError(f"{self._pattern}: no rows in any of its files.")
        return extents

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        path = range_.path
        with open_parquet(path) as file:
            groups = range(range_.start, range_.stop)
            row = sum(file.metadata.row_group(group).num_rows for group in range(range_.start))
            batches = file.iter_batches(256, row_groups=list(groups), columns=[self._column])
            for batch in batches:
                # The rows are cast to bytes, so that each row's UTF-8 is checked here.
                column = batch.column(0).cast("large_binary")
                for value in column:
                    where = f"{path} row {row} column {self._column!r}"
                    yield _decoded(value.as_py(), where, skip)
                    row += 1


class _Tfds(Source):
    """One text feature of a data set of tensorflow-datasets, cut by examples."""

    def __init__(self, place: str, feature: str):
        self._place, self._feature = place, feature
        self._name, _, self._split = place.rpartition("/")
        if not self._name or not self._split:
            raise InputError(f"tfds:{place}: write tfds:NAME/SPLIT#feature, as in imdb/train#text.")

    def extents(self) -> list[Extent]:
        builder = tfds.prepare(self._name, self._split, [self._feature])
        split = builder.info.splits[self._split]
        if not split.num_examples:
            raise InputError(f"tfds:{self._place}: the split is empty.")
        return [Extent(self._place, split.num_examples, split.num_bytes)]

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        records = tfds.open_split(self._name, self._split, [self._feature])
        for number in range(range_.start, range_.stop):
            where = f"tfds:{self._place} example {number} feature {self._feature!r}"
            yield _decoded(records[number][self._feature], where, skip)
