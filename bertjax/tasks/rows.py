"""Rows of a file by the names of its columns: CSV, TSV, or JSON on lines.

  .csv    quotes as in RFC 4180: a field in quotes may hold commas, quotes ("") and line ends
  .tsv    no quotes at all, as in GLUE's files: a field may hold neither tabs nor line ends
  .jsonl  an object on each line; its fields may be lists, too

The first two have a line of names first. Empty lines do not count. Files may be compressed.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.corpus import sources
from bertjax.errors import InputError
from bertjax.tasks import official_files

FORMATS = (".csv", ".tsv", ".jsonl")
_LONGEST_FIELD = 2**31 - 1  # of a CSV; Python's own limit is shorter than many documents
_OBJECT = re.compile(r'\s*\{\s*"')


class Row(NamedTuple):
    """One row.

    Attributes:
      number: of the row, from 0.
      where: file and line, for messages.
      fields: column -> value.
    """

    number: int
    where: str
    fields: Mapping[str, Any]

    def value(self, column: str) -> Any:
        """What is in a column.

        Raises:
          InputError: there is no such column.
        """
        if column not in self.fields:
            raise InputError(
                f"{self.where}: no column {column!r}; it has {', '.join(map(repr, self.fields))}"
            )
        return self.fields[column]

    def text(self, column: str) -> str:
        """A text that is not empty.

        Raises:
          InputError: there is none.
        """
        value = self.value(column)
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {column!r} is {value!r:.80}, not a text")
        if not value.strip():
            raise InputError(f"{self.where}: {column!r} is empty")
        return value

    def label(self, column: str) -> str:
        """A class: a text, or a whole number or truth value of JSON as a text.

        Raises:
          InputError: there is none.
        """
        value = self.value(column)
        return str(value) if isinstance(value, int) else self.text(column)

    def real(self, column: str) -> float:
        """A number.

        Raises:
          InputError: there is none.
        """
        value = self.value(column)
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{self.where}: {column!r} is {value!r:.80}, not a number") from None

    def whole(self, column: str, stop: int) -> int:
        """A number of 0..stop-1.

        Raises:
          InputError: there is none.
        """
        value = self.real(column)
        if value not in range(stop):
            raise InputError(f"{self.where}: {column!r} is {value:g}, not of 0 to {stop - 1}")
        return int(value)

    def texts(self, column: str) -> tuple[str, ...]:
        """A list of texts, or one text with spaces between its words, as words.

        Raises:
          InputError: neither.
        """
        value = self.value(column)
        if isinstance(value, str):
            return tuple(value.split())
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InputError(f"{self.where}: {column!r} is {value!r:.80}, not a list of texts")
        return tuple(value)


def read_rows(folder: Path, *names: str) -> Iterator[Row]:
    """The rows of the first of some files that is there; by its ending it is read.

    Raises:
      InputError: no such file, or one with another ending; a damaged one; a line with more or
        fewer columns than the first; a line that is not JSON.
    """
    path = official_files.find(folder, *names)
    readers = dict(zip(FORMATS, (_csv, _tsv, _jsonl), strict=True))
    reader = readers.get(official_files.ending(path))
    if reader is None:
        raise InputError(f"{path}: must end in {', '.join(FORMATS)} (before .gz, .xz or .zst)")
    for number, (where, fields) in enumerate(reader(path)):
        yield Row(number, where, fields)


_Fields = Iterator[tuple[str, Mapping[str, Any]]]


def _csv(path: Path) -> _Fields:
    _, text = official_files.text(path.parent, path.name)
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from _named(path, ((reader.line_num, values) for values in reader))
    except csv.Error as error:
        raise InputError(
            f"{path} line {reader.line_num}: not CSV ({error}): put fields with quotes into "
            "quotes, each of their quotes doubled; or write JSON on lines"
        ) from error


def _tsv(path: Path) -> _Fields:
    lines = enumerate(official_files.lines(path.parent, path.name), start=1)
    return _named(path, ((number, line.split("\t") if line else []) for number, line in lines))


def _named(path: Path, lines: Iterator[tuple[int, list[str]]]) -> _Fields:
    """The columns under the names that the first line gives them."""
    lines = ((number, values) for number, values in lines if values)
    _, names = next(lines, (0, []))
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two columns have the same name: {', '.join(map(repr, names))}")
    for number, values in lines:
        where = f"{path} line {number}"
        if len(values) != len(names):
            raise InputError(f"{where}: {len(values)} columns, but {len(names)} in the first line")
        yield where, dict(zip(names, values, strict=True))


def _jsonl(path: Path) -> _Fields:
    for number, line in enumerate(official_files.lines(path.parent, path.name), start=1):
        if line.strip():
            yield f"{path} line {number}", json_object(line, f"{path} line {number}")


def looks_like_json(line: str) -> bool:
    """Whether a line begins as an object with a field, and not as a text in braces may."""
    return bool(_OBJECT.match(line))


def json_object(line: str, where: str, form: str = "an object on each line") -> dict[str, Any]:
    """A JSON object from a line.

    Args:
      form: what to write, for the message.

    Raises:
      InputError: the line is none, or has half a character in it.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}): write {form}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a JSON object: write {form}")
    if "\\u" in line:
        check_characters(json.dumps(value, ensure_ascii=False), where)
    return value


def check_characters(text: str, where: str) -> None:
    """Raises InputError for what an escape of JSON can write and no encoding can."""
    if half := sources.LONE_SURROGATE.search(text):
        raise InputError(
            f"{where}: \\u{ord(half.group()):x} is half a surrogate pair, which is no character: "
            "write the character itself, or both halves"
        )
