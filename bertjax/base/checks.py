"""Checks that many files make of flags, keys and files: each has one message."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bertjax.base.cloud_storage import checked_path, in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import no_file
from bertjax.base.validation import converted, shown

T = TypeVar("T")


@contextlib.contextmanager
def input_error_at(
    place: Any, errors: type[Exception] | tuple[type[Exception], ...] = ValueError, hint: str = ""
) -> Iterator[None]:
    """Makes such errors of the block an InputError: the place, why, and the hint."""
    try:
        yield
    except errors as error:
        raise InputError(f"{place}: {error}" + (f": {hint}" if hint else "")) from error


def converted_with_hint(value: Any, type_: type[T], origin: Any, hint: str) -> T:
    """A value of `origin`, as `converted` gives it; an InputError also says the hint."""
    with input_error_at(origin, hint=hint):
        return converted(value, type_)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Says of an unknown name which known one is like it; or ""."""
    return "".join(f": did you mean {x}?" for x in difflib.get_close_matches(str(name), known, 1))


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raises InputError unless a value, of a flag or a key, is one of the choices."""
    known = tuple(choices)
    if value not in known:
        shown_value = value if name.startswith("--") else shown(value)
        names = [str(choice) or "''" for choice in known]
        raise InputError(
            f"{name}={shown_value}: must be one of {', '.join(names)}{did_you_mean(value, names)}"
        )


def check_range(name: str, value: int, least: int, most: int, why: str = "") -> None:
    """Raises InputError unless a number is within limits that are known only now."""
    if not least <= value <= most:
        raise InputError(f"{name}={value}: must be from {least} to {most}{why}")


def check_divides(name: str, value: int, divisor: str, count: int) -> None:
    """Raises InputError unless a number is a multiple of another."""
    if count and value % count:
        raise InputError(f"{name}={value} is not a multiple of {divisor}={count}")


def check_given(name: str, value: Any, hint: str) -> None:
    """Raises InputError if a flag or a key is empty."""
    if not value:
        raise InputError(f"{name} is empty: {hint}")


def check_in_folder(path: Path, origin: Any) -> None:
    """Raises InputError if a model's folder, which came from `origin`, lacks a file."""
    if not path.exists():
        raise InputError(f"{origin}: no {path.name} in it: download it, too")


def check_file(path: str | Path, flag: str = "") -> None:
    """Raises InputError unless a path is a file that can be read twice."""
    if not Path(path).is_file():
        raise InputError(f"{flag and f'--{flag}='}{path}: {no_file(path)}")


def check_output(output: str, ending: str = ".json", flag: str = "output") -> None:
    """Raises InputError if such a file cannot be written there; called before long work."""
    path = path_of(output)
    checked_path(path.parent, write=True)
    fits = path.suffix == ending and not path.is_dir()
    if not (fits and (in_bucket(path) or path.parent.is_dir())):
        raise InputError(f"--{flag}={output}: must be a {ending} file in an existing folder")


def check_new_output(path: Path) -> None:
    """Raises InputError if a file is there already, or its folder is not."""
    if path.exists():
        raise InputError(f"--output={path}: is there already: choose another, or remove it")
    if not (in_bucket(path) or path.parent.is_dir()):
        raise InputError(f"--output={path}: no folder {path.parent}: make it")
