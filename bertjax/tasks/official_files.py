"""The files of a data set, under their official names, plain or compressed."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bertjax.base.errors import InputError
from bertjax.base.files import no_file
from bertjax.base.validation import utf8
from bertjax.data.corpus import line_files

T = TypeVar("T")

_ENDINGS = ("", *line_files.COMPRESSED)


def find(folder: Path, *names: str) -> Path:
    """Finds the one file of `names` that is in `folder`, compressed or not."""
    paths = [folder / (name + suffix) for name in names for suffix in _ENDINGS]
    found = [path for path in paths if path.is_file()]
    if len(found) > 1:
        raise InputError(
            f"{folder}: has {' and '.join(path.name for path in found)}, but only one may exist: "
            "keep the right one and move the others away"
        )
    if not found:
        for path in paths:
            if path.exists():
                raise InputError(f"{path}: {no_file(path)}")
        what = f"no {' or '.join(names)} in it" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {what}: name the folder that has {names[0]} (or compressed, {names[0]}.xz)"
        )
    return found[0]


def exists(folder: Path, *names: str) -> bool:
    """Whether `folder` has at least one of `names`, compressed or not."""
    return any((folder / (name + suffix)).is_file() for name in names for suffix in _ENDINGS)


def ending(path: Path) -> str:
    """The ending of a file's name without that of its compression: ".csv" for "a.csv.gz"."""
    return Path(path.stem).suffix if path.suffix in line_files.COMPRESSED else path.suffix


def lines(folder: Path, *names: str) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file without "\n" or "\r\n"; nothing else ends a line."""
    path = find(folder, *names)
    for number, (_, line) in enumerate(line_files.lines(str(path), 0), start=1):
        yield utf8(line, f"{path} line {number}").removesuffix("\n").removesuffix("\r")


def text(folder: Path, *names: str) -> tuple[Path, str]:
    """The path and the text of a UTF-8 file."""
    path = find(folder, *names)
    with line_files.open_bytes(str(path)) as file:
        data = file.read()
    return path, utf8(data, path).removeprefix("\ufeff")


def json_value(folder: Path, *names: str) -> tuple[Path, Any]:
    """The path and the value of a JSON file."""
    path, content = text(folder, *names)
    try:
        return path, json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}): download it again") from error


def nonempty(found: Iterable[T], place: object, what: str = "row") -> list[T]:
    """A list of what was read; InputError if that is nothing."""
    if result := list(found):
        return result
    raise InputError(f"{place}: no {what} in it")


def check_width(
    where: str, row: Sequence[str], width: int, form: str, *, optional: int = 0
) -> None:
    """Raises InputError unless a row has as many columns as its form, or lacks `optional` ones."""
    if not width - optional <= len(row) <= width:
        content = " ".join(row)[:80]
        raise InputError(f"{where}: {len(row)} columns, but {form} has {width}: {content!r}")
