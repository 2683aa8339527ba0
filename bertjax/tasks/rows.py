"""Reads rows with named columns from a CSV, TSV, JSON-lines or Parquet file.

  .csv    quotes as in RFC 4180: a field in quotes may hold commas, quotes ("") and line ends. The
          first of comma, semicolon, tab and | that is in the first line separates the columns, or
          what a line such as "sep=;" before it names
  .tsv    no quotes, as in GLUE's files: a field may hold neither tabs nor line ends
  .jsonl  an object on each line, whose fields may also be lists
  .parquet  columns of texts, numbers or lists; of classes the names, where the library datasets
            has written them (`datasets.ClassLabel`)

The first line of a CSV or TSV file has the names of the columns. Empty lines are skipped. Files
of the first three kinds may be compressed.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.checks import converted_with_hint
from bertjax.base.errors import InputError
from bertjax.base.validation import converted, optional, parsed, real
from bertjax.data.corpus.json_lines import LONE_SURROGATE
from bertjax.data.corpus.line_files import COMPRESSED
from bertjax.data.corpus.parquet_files import open_parquet
from bertjax.tasks import official_files

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
_LONGEST_FIELD = 2**31 - 1  # for CSV; Python's default is shorter than many documents
_DELIMITERS = ",;\t|"  # of CSV
_QUOTED = re.compile('"[^"]*"')
_FIRST_LINE = re.compile(r'\s*(?:"[^"]*"|[^"\r\n])*')
_SEPARATOR = re.compile('sep=([^\r\n"])\r?\n')  # before the first line, as Excel reads it
_OBJECT = re.compile(r"""\s*\[?\s*\{\s*("|'?\w+'?\s*:)""")


class NullValue(InputError):
    """A row has no value in a column that it needs."""


class FileRow(NamedTuple):
    """One row of a file: field by column. `number` counts from 0; `where` is file and line.

    A method raises InputError if the row lacks the column or has another kind of value in it.
    """

    number: int
    where: str
    fields: Mapping[str, Any]

    def require(self, holds: object, column: str, problem: str) -> None:
        """Raises InputError about the value of a column unless something holds."""
        if not holds:
            value = self.fields[column]
            listed = value if isinstance(value, list) else [value]
            members = value.values() if isinstance(value, dict) else listed
            error = NullValue if None in members else InputError
            raise error(f"{self.where}: {column!r} is {value!r:.80}, {problem}")

    def value(self, column: str) -> Any:
        """The value of a column."""
        if column not in self.fields:
            raise InputError(
                f"{self.where}: no column {column!r}; it has {', '.join(map(repr, self.fields))}"
            )
        return self.fields[column]

    def string(self, column: str) -> str:
        """The text of a column, which may be empty."""
        value = self.value(column)
        self.require(isinstance(value, str), column, "not a text")
        return value

    def text(self, column: str) -> str:
        """The text of a column, which must not be empty."""
        value = self.string(column)
        if not value.strip():
            raise InputError(f"{self.where}: {column!r} is empty")
        return value

    def label(self, column: str) -> str:
        """The class of a column: a text, or a JSON integer or boolean, which becomes a text."""
        value = self.value(column)
        none = "no label (in a data set of the hub, -1 means that): leave such rows out"
        self.require(value is not None, column, none)
        return str(value) if isinstance(value, int) else self.text(column)

    def labels(self, column: str, separator: str) -> tuple[str, ...]:
        """The classes of a column: a list of them, or a text with separators between them.

        An empty list or text has none. White space around the classes of a text is removed. A class
        must not be empty.
        """
        value = self.value(column)
        if isinstance(value, str):
            value = value.split(separator) if value.strip() else []
            value = [each.strip() for each in value]
        self.require(_is_list(value, str | int), column, "not a list of labels")
        labels = tuple(map(str, value))
        self.require(all(map(str.strip, labels)), column, "which has an empty label")
        return labels

    def real(self, column: str) -> float:
        """The number of a column, as `bertjax.base.validation.real` reads it."""
        return self._numbers(column, [self.value(column)], "a number")[0]

    def reals(self, column: str) -> tuple[float, ...]:
        """The numbers of a column, which holds a list of them, or one."""
        value = self.value(column)
        if not isinstance(value, list):
            return (self.real(column),)
        return self._numbers(column, value, "a list of numbers")

    def _numbers(self, column: str, values: Collection[Any], what: str) -> tuple[float, ...]:
        numbers = tuple(number for number in map(real, values) if number is not None)
        self.require(len(numbers) == len(values), column, f"not {what}")
        return numbers

    def probabilities(self, column: str) -> dict[str, float]:
        """The object of a column, with a number for each class."""
        value = self.value(column)
        what = "an object with a probability of each class, as launch/predict.py writes it"
        self.require(isinstance(value, dict), column, f"not {what}")
        return dict(zip(value, self._numbers(column, value.values(), what), strict=True))

    def integer(self, column: str, stop: int) -> int:
        """The integer of a column, from 0 to stop-1."""
        value = self.real(column)
        self.require(value in range(stop), column, f"not one of 0 to {stop - 1}")
        return int(value)

    def texts(self, column: str) -> tuple[str, ...]:
        """The words of a column: a list of texts, or one text that is split at spaces."""
        value = self.value(column)
        if isinstance(value, str):
            return tuple(value.split())
        self.require(_is_list(value, str), column, "not a list of texts")
        return tuple(value)


def _is_list(value: Any, type_: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, type_) for each in value)


def read_rows(folder: Path, *names: str) -> Iterator[FileRow]:
    """Yields the rows of the one of `names` that is in `folder`; its ending tells the format."""
    return read_files([official_files.find(folder, *names)])


def read_files(paths: Iterable[Path]) -> Iterator[FileRow]:
    """Yields the rows of several files, which are numbered on from file to file."""
    return _numbered(itertools.chain.from_iterable(map(_fields, paths)))


_Fields = Iterator[tuple[str, Mapping[str, Any]]]


def _fields(path: Path) -> _Fields:
    readers = dict(zip(FORMATS, (_csv, _tsv, _jsonl, _parquet), strict=True))
    reader = readers.get(official_files.ending(path))
    if reader is None:
        raise InputError(
            f"{path}: must end in {', '.join(FORMATS)} (before {' '.join(COMPRESSED)})"
        )
    return reader(path)


def read_csv_rows(folder: Path, name: str) -> Iterator[FileRow]:
    """Yields the rows of a CSV file with any ending, compressed or not."""
    yield from _numbered(_csv(official_files.find(folder, name)))


def _numbered(found: _Fields) -> Iterator[FileRow]:
    for number, (where, fields) in enumerate(found):
        yield FileRow(number, where, fields)


def _csv(path: Path) -> _Fields:
    _, text = official_files.text(path.parent, path.name)
    csv.field_size_limit(_LONGEST_FIELD)
    first = _FIRST_LINE.match(text)
    assert first is not None  # an empty text matches, too
    header = _QUOTED.sub("", first[0])
    delimiter = next((each for each in _DELIMITERS if each in header), ",")
    separator = _SEPARATOR.match(text)
    delimiter = separator[1] if separator else delimiter
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        if separator:
            next(reader)
        yield from _named(path, ((reader.line_num, values) for values in reader))
    except csv.Error as error:
        raise InputError(
            f"{path} line {reader.line_num}: not CSV ({error}): a field with quotes needs quotes "
            "around it, and its own quotes doubled; or use a .jsonl file"
        ) from error


def _tsv(path: Path) -> _Fields:
    lines = enumerate(official_files.lines(path.parent, path.name), start=1)
    return _named(path, ((number, line.split("\t") if line else []) for number, line in lines))


def _named(path: Path, lines: Iterator[tuple[int, list[str]]]) -> _Fields:
    """Yields the fields of each line, under the names in the first line."""
    lines = ((number, values) for number, values in lines if values)
    _, names = next(lines, (0, []))
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two columns have the same name: {', '.join(map(repr, names))}")
    for number, values in lines:
        where = f"{path} line {number}"
        official_files.check_width(where, values, len(names), "the first line")
        yield where, dict(zip(names, values, strict=True))


def _jsonl(path: Path) -> _Fields:
    for number, line in enumerate(official_files.lines(path.parent, path.name), start=1):
        if line.strip():
            yield f"{path} line {number}", json_object(line, f"{path} line {number}")


def _parquet(path: Path) -> _Fields:
    with open_parquet(str(path)) as file:
        named = _class_names(path, (file.schema_arrow.metadata or {}).get(b"huggingface"))
        batches = file.iter_batches()
        rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, fields in enumerate(rows, start=1):
            where = f"{path} row {number}"
            for column, names in named.items():
                fields[column] = _class(fields[column], names, f"{where}: {column!r}")
            yield where, fields


def _class_names(path: Path, about: bytes | None) -> dict[str, list[str]]:
    """Column -> the names of its classes, which the library datasets keeps in the schema."""
    if about is None:
        return {}
    origin = f"{path}, 'huggingface' in its schema"
    type_ = optional(info=optional(features=dict[str, Any]))
    features = (parsed(about, type_, origin, "write it again").get("info") or {}).get("features")
    found = {}
    for column, feature in (features or {}).items():
        match feature:  # that of a list holds that of its members
            case (
                ({"_type": "ClassLabel"} as classes)
                | {"feature": {"_type": "ClassLabel"} as classes}
                | [{"_type": "ClassLabel"} as classes]
            ):
                where = f"{origin}: names of {column}"
                found[column] = converted(classes.get("names"), list[str], where)
    return found


def _class(value: Any, names: list[str], where: str) -> Any:
    """The name of a class by its number, or those of a list; None for -1, which is no label."""
    if isinstance(value, list):
        return [_class(each, names, where) for each in value]
    if value is None or value == -1:
        return None
    if value not in range(len(names)):
        raise InputError(f"{where} is {value!r:.80}, and the schema names {len(names)} classes")
    return names[value]


def looks_like_json(line: str) -> bool:
    """Whether a line begins like a JSON object with a field, and not like a text in braces.

    The field may lack its quotes, or have Python's, and the object may be in a list: then it is not
    JSON as it should be, but not a text either.
    """
    return bool(_OBJECT.match(line))


def json_object(
    line: str, where: str, form: str = "an object on each line", type_: Any = dict
) -> dict[str, Any]:
    """Parses a JSON object of type `type_` from a line; `form` is its form, for the message."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}): write {form}") from error
    converted_with_hint(value, type_, where, f"write {form}")
    if "\\u" in line:
        check_characters(json.dumps(value, ensure_ascii=False), where)
    return value


def check_characters(text: str, where: str) -> None:
    """Raises InputError for a lone surrogate, which JSON can escape but UTF-8 cannot encode."""
    if half := LONE_SURROGATE.search(text):
        raise InputError(
            f"{where}: \\u{ord(half.group()):x} is half a surrogate pair, which is no character: "
            "write the character itself, or both halves"
        )
