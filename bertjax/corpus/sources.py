"""The sources of text: how each kind is read, and how it is cut into ranges.

  text:GLOB              a blank line ends a document, a line is a paragraph
  lines:GLOB             a line is a document
  jsonl:GLOB#field       a line is a JSON object, its field a document
  parquet:GLOB#column    a row is a document
  tfds:NAME/SPLIT#feature    tensorflow-datasets, read without TensorFlow
  installed-docs         see `bertjax.corpus.installed_docs`

A code before a source names its language: "sw=text:swahili/*.txt".

In the last four kinds, newlines separate the paragraphs of a document. Files of the first three
kinds may be compressed (.gz .xz .zst). All sources are read in bounded memory.

A source is cut into ranges by sizes alone, so the cut does not depend on the number of readers.
Each document belongs to exactly one range.
"""

import abc
import codecs
import contextlib
import dataclasses
import glob
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bertjax.base.errors import InputError
from bertjax.corpus import tfds
from bertjax.corpus.languages import check_languages, split_language
from bertjax.corpus.weights import check_weights, split_weight

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

KINDS = (
    "text:GLOB, lines:GLOB, jsonl:GLOB#field, parquet:GLOB#column, tfds:NAME/SPLIT#feature, "
    "installed-docs"
)
INSTALLED_DOCS = "installed-docs"
MAX_DOCUMENT_BYTES = 64 << 20

Document = list[str]  # paragraphs


@dataclasses.dataclass(frozen=True)
class Range:
    """A part of one file (or data set): bytes, row groups or examples start..stop-1.

    Attributes:
      path: the file; for tfds, NAME/SPLIT.
      start, stop: in the source's unit; a compressed file is always one range.
      size: the approximate number of raw bytes.
    """

    path: str
    start: int
    stop: int
    size: int


@dataclasses.dataclass(frozen=True)
class Extent:
    """One whole file (or data set), before it is cut.

    Attributes:
      path: as in `Range`.
      units: the number of its bytes, row groups or examples.
      size: the approximate number of raw bytes.
      divisible: whether reading can start in the middle, as it cannot in a compressed file.
    """

    path: str
    units: int
    size: int
    divisible: bool = True

    def cut(self, target: int) -> Iterator[Range]:
        """Cuts it into ranges of nearly equal length, of about `target` raw bytes each."""
        pieces = min(self.units, max(1, round(self.size / target))) if self.divisible else 1
        for piece in range(pieces):
            start, stop = self.units * piece // pieces, self.units * (piece + 1) // pieces
            size = self.size * (stop - start) // max(1, self.units)
            yield Range(self.path, start, stop, size)


class Source(abc.ABC):
    """One source of documents."""

    @abc.abstractmethod
    def extents(self) -> list[Extent]:
        """The files (or data set) of the source, in order; tfds may download it first.

        Raises:
          InputError: nothing matches, or a file is not of this kind.
        """

    @abc.abstractmethod
    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        """The documents of one range, in order; None stands for a skipped document.

        Raises:
          InputError: bytes that are not UTF-8 (unless they are to be skipped), a damaged file,
            or a record without the field. The message names the file, and the line or offset.
        """

    def all_documents(
        self, *, skip_undecodable: bool
    ) -> Iterator[tuple[str, int, Document | None]]:
        """All documents, in order, each with its file and its number in it, from 1."""
        for extent in self.extents():
            whole = Range(extent.path, 0, extent.units, extent.size)
            found = self.documents(whole, skip_undecodable=skip_undecodable)
            for number, document in enumerate(found, start=1):
                yield extent.path, number, document


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
    """Opens the source that `spec` names.

    Args:
      spec: as described at the top of this file, perhaps with a language, without a weight.
      installed_docs: the text file that `installed-docs` was written to.
    """
    _, spec = split_language(spec)
    if spec == INSTALLED_DOCS:
        return _Text(glob.escape(str(installed_docs)))
    kind, colon, rest = spec.partition(":")
    if colon and rest and kind in ("text", "lines"):
        return (_Text if kind == "text" else _Lines)(rest)
    kinds: dict[str, Callable[[str, str], Source]]
    kinds = {"jsonl": _JsonLines, "parquet": _Parquet, "tfds": _Tfds}
    if kind not in kinds:
        raise InputError(f"--source={spec}: not one of {KINDS}.")
    place, _, field = rest.rpartition("#")
    if not place or not field:
        raise InputError(f"--source={spec}: write {kind}:...#NAME, where NAME holds the text.")
    return kinds[kind](place, field)


def _files(pattern: str) -> list[Path]:
    """The files that match a glob, sorted. Raises InputError if none matches or all are empty."""
    paths = [Path(name) for name in sorted(glob.glob(os.path.expanduser(pattern), recursive=True))]
    files = [path for path in paths if path.is_file()]
    if not files:
        raise InputError(f"{pattern}: no such file: check the path (quote a glob for the shell).")
    if not any(path.stat().st_size for path in files):
        raise InputError(f"{pattern}: empty: {len(files)} files without a byte.")
    return files


# --------------------------------------------------------------------- lines of a file


def _decompressor(path: Path) -> Callable[..., Any] | None:
    """The function that opens a compressed file for reading bytes; None if it is plain."""
    if path.suffix == ".gz":
        import gzip

        return gzip.open
    if path.suffix == ".xz":
        import lzma

        return lzma.open
    if path.suffix == ".zst":
        import pyarrow

        # Unlike other readers of this format, this one notices a truncated file.
        return lambda path, _: io.BufferedReader(pyarrow.input_stream(path, compression="zstd"))
    return None


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file, compressed or not; a damaged compressed file raises InputError."""
    decompressor = _decompressor(path)
    if decompressor is None:
        with open(path, "rb") as file:
            yield file
        return
    import lzma
    import zlib

    with decompressor(path, "rb") as file:
        try:
            yield file
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(
                f"{path}: damaged or not a {path.suffix} file ({error}): fetch it again."
            ) from error


def lines(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields (byte offset, line with its end) for each line that begins at or after `start`.

    In a compressed file, offsets count decompressed bytes.
    """
    with open_bytes(path) as file:
        offset = 0
        if start:
            # The line that contains the byte before `start` belongs to the previous range.
            file.seek(start - 1)
            offset = start - 1 + len(file.readline(MAX_DOCUMENT_BYTES + 1))
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) > MAX_DOCUMENT_BYTES:
                raise InputError(
                    f"{path}: a line of more than {MAX_DOCUMENT_BYTES >> 20} MiB at byte {offset}: "
                    "is this a text file?"
                )
            yield offset, line.removeprefix(codecs.BOM_UTF8) if offset == 0 else line
            offset += len(line)


def _line_number(path: Path, offset: int) -> int:
    """The number, from 1, of the line at `offset`. It reads the file, so only messages use it."""
    with open_bytes(path) as file:
        lines = 1
        while offset > 0 and (block := file.read(min(1 << 20, offset))):
            lines += block.count(b"\n")
            offset -= len(block)
    return lines


_SKIP_HINT = "Convert it to UTF-8, or pass --undecodable=skip to leave such documents out."


class _LineFiles(Source):
    """A source that is read line by line."""

    def __init__(self, pattern: str):
        self._pattern = pattern

    def extents(self) -> list[Extent]:
        sizes = [(path, path.stat().st_size) for path in _files(self._pattern)]
        return [Extent(str(path), size, size, not _decompressor(path)) for path, size in sizes]

    @staticmethod
    def _stop(part: Range) -> float:
        """The offset at which a range ends; in a compressed file that is the file's end."""
        return float("inf") if _decompressor(Path(part.path)) else part.stop


class _Text(_LineFiles):
    """Text files: each line is a paragraph, and blank lines separate documents.

    A document belongs to the range in which the blank line before it begins.
    """

    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        path, stop = Path(part.path), self._stop(part)
        mine = part.start == 0
        decodable = True
        document: Document = []
        size = 0
        for offset, line in lines(path, part.start):
            if not line.strip():
                if document or not decodable:
                    yield document if decodable else None
                document, decodable, size = [], True, 0
                if offset >= stop:
                    return
                mine = True
            elif mine:
                size += len(line)
                if size > MAX_DOCUMENT_BYTES:
                    raise InputError(
                        f"{path}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB is not "
                        f"ended before byte {offset}: put a blank line between documents."
                    )
                try:
                    paragraph = line.decode("utf-8").strip()
                except UnicodeDecodeError as error:
                    if not skip_undecodable:
                        raise InputError(
                            f"{path}: not UTF-8 at byte {offset + error.start} ({error.reason}). "
                            f"{_SKIP_HINT}"
                        ) from error
                    decodable, paragraph = False, ""
                if paragraph:
                    document.append(paragraph)
        if document or not decodable:
            yield document if decodable else None


class _Lines(_LineFiles):
    """Text files in which each line is a document; a line belongs to the range it begins in."""

    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        path, stop = Path(part.path), self._stop(part)
        for offset, line in lines(path, part.start):
            if offset >= stop:
                return
            if line.strip():
                yield _decoded(line, f"{path} line at byte {offset}", skip_undecodable)


# JSON can contain these as escapes. Python decodes them into text that UTF-8 cannot encode.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _JsonLines(_LineFiles):
    """A JSON object on each line; a line belongs to the range in which it begins."""

    def __init__(self, pattern: str, field: str):
        super().__init__(pattern)
        self._field = field

    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        path, stop = Path(part.path), self._stop(part)
        for offset, line in lines(path, part.start):
            if offset >= stop:
                return
            if not line.strip():
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                if not skip_undecodable:
                    raise InputError(
                        f"{path}: not UTF-8 at byte {offset + error.start} (line "
                        f"{_line_number(path, offset)}, {error.reason}). {_SKIP_HINT}"
                    ) from error
                yield None
                continue
            value = self._text_of(text, path, offset)
            if "\\u" in text and LONE_SURROGATE.search(value):
                if not skip_undecodable:
                    raise InputError(
                        f"{path} line {_line_number(path, offset)}: field {self._field!r} holds "
                        f"half a surrogate pair, which is no character. {_SKIP_HINT}"
                    )
                yield None
                continue
            yield _paragraphs(value)

    def _text_of(self, line: str, path: Path, offset: int) -> str:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path} line {_line_number(path, offset)}: not JSON ({error})."
            ) from error
        value = record.get(self._field) if isinstance(record, dict) else None
        if isinstance(value, str):
            return value
        where = f"{path} line {_line_number(path, offset)}"
        if not isinstance(record, dict):
            raise InputError(f"{where}: not a JSON object.")
        if self._field not in record:
            fields = ", ".join(map(repr, record)) or "none"
            raise InputError(f"{where}: no field {self._field!r}; its fields are {fields}.")
        raise InputError(f"{where}: field {self._field!r} is {type(value).__name__}, not text.")


def _paragraphs(text: str) -> Document:
    return [line for line in map(str.strip, text.split("\n")) if line]


def _decoded(value: Any, where: str, skip_undecodable: bool) -> Document | None:
    """The paragraphs of one record's bytes or text."""
    if isinstance(value, str):
        return _paragraphs(value)
    if not isinstance(value, bytes):
        raise InputError(f"{where}: {type(value).__name__}, not text.")
    try:
        return _paragraphs(value.decode("utf-8"))
    except UnicodeDecodeError as error:
        if skip_undecodable:
            return None
        raise InputError(
            f"{where}: not UTF-8 at its byte {error.start} ({error.reason}). {_SKIP_HINT}"
        ) from error


# ------------------------------------------------------------------ records of a library


class _Parquet(Source):
    """One column of Parquet files, cut by row groups."""

    def __init__(self, pattern: str, column: str):
        self._pattern, self._column = pattern, column

    @staticmethod
    def _open(path: Path) -> "ParquetFile":
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile

        try:
            return ParquetFile(path)
        except arrow.ArrowInvalid as error:
            raise InputError(f"{path}: not a Parquet file, or damaged ({error}).") from error

    def extents(self) -> list[Extent]:
        import pyarrow as arrow

        extents = []
        for path in _files(self._pattern):
            with self._open(path) as file:
                schema, metadata = file.schema_arrow, file.metadata
                rows = metadata.num_rows
                if self._column not in schema.names:
                    names = ", ".join(schema.names)
                    raise InputError(f"{path}: no column {self._column!r}; it has {names}.")
                kind = schema.field(self._column).type
                texts = (arrow.string(), arrow.large_string(), arrow.binary(), arrow.large_binary())
                if kind not in texts:
                    raise InputError(f"{path}: column {self._column!r} is {kind}, not text.")
                index = schema.names.index(self._column)
                sizes = [
                    metadata.row_group(group).column(index).total_uncompressed_size
                    for group in range(metadata.num_row_groups)
                ]
            if rows:
                extents.append(Extent(str(path), len(sizes), sum(sizes)))
        if not extents:
            raise InputError(f"{self._pattern}: no rows in any of its files.")
        return extents

    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        import pyarrow as arrow

        path = Path(part.path)
        with self._open(path) as file:
            groups = range(part.start, part.stop)
            row = sum(file.metadata.row_group(group).num_rows for group in range(part.start))
            batches = file.iter_batches(256, row_groups=list(groups), columns=[self._column])
            for batch in batches:
                # The rows are cast to bytes, so that each row's UTF-8 is checked here.
                column = batch.column(0).cast(arrow.large_binary())
                for value in column:
                    where = f"{path} row {row} column {self._column!r}"
                    yield _decoded(value.as_py(), where, skip_undecodable)
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

    def documents(self, part: Range, *, skip_undecodable: bool) -> Iterator[Document | None]:
        records = tfds.open_split(self._name, self._split, [self._feature])
        for number in range(part.start, part.stop):
            where = f"tfds:{self._place} example {number} feature {self._feature!r}"
            yield _decoded(records[number][self._feature], where, skip_undecodable)
