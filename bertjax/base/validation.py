"""Checks values of JSON files, configs and flags: their types, and that numbers are plausible.

Types are written in Python, as the library msgspec reads them: `list[str]`, `dict[str, int]`,
`int | None`, `record(...)`, dataclasses. A float may be written as a whole number; True is not a
number.
"""

import json
import re
import reprlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NotRequired, TypedDict, TypeVar

import msgspec

from bertjax.base.errors import InputError

T = TypeVar("T")

_WHOLE = 2**31  # steps, ids and seeds are int32 on the devices
_SMALLEST, _LARGEST = 1.2e-38, 3.4e38  # limits of float32; devices round smaller numbers to 0

# The greatest plausible value, by the last part of a name. A greater one would take endless time or
# memory, so it is a typing error or damage.
_MOST = {
    **dict.fromkeys(("vocab_size", "learn_vocabulary", "batch_tokens"), 10_000_000),
    **dict.fromkeys(("max_position_embeddings", "intermediate_size"), 1_000_000),
    **dict.fromkeys(("batch_size", "eval_batch_size", "eval_batches", "batches"), 1_000_000),
    **dict.fromkeys(("hidden_size", "hidden", "vocab_multiple"), 100_000),
    **dict.fromkeys(("type_vocab_size", "workers"), 10_000),
    **dict.fromkeys(("num_hidden_layers", "depth", "buckets", "answer_steps"), 1_000),
    **dict.fromkeys(("epochs", "restarts", "max_answer_length", "n_best"), 1_000),
}

# A number of a file, as most languages write it. Python reads more: "1_000", "nan", other digits.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Python itself writes no number of more than 4,300 digits."""
        bits = x.bit_length()
        return super().repr_int(x, level) if bits < 10_000 else f"a number of {bits:,} bits"


_shown = _Shown()
_shown.maxstring = 80


def record(**kinds: Any) -> Any:
    """The type of a JSON object that has these fields, and may have others."""
    return TypedDict("record", kinds)  # type: ignore[operator]


def optional(**kinds: Any) -> Any:
    """The type of a JSON object in which each of these fields may be absent or null."""
    return if_given(**{name: kind | None for name, kind in kinds.items()})


def if_given(**kinds: Any) -> Any:
    """The type of a JSON object in which each of these fields may be absent, but not null."""
    return record(**{name: NotRequired[kind] for name, kind in kinds.items()})


def parsed(data: bytes, kind: Any, origin: Any, cure: str, *, limited: bool = False) -> Any:
    """Parses JSON in UTF-8, and checks the type of the value.

    Args:
      kind: the type.
      origin: the file of the data, for the message.
      cure: what to do about damage, for the message.
      limited: whether to check the numbers of the fields that `kind` names by `check_numbers`.

    Raises:
      InputError: the data is not UTF-8, not JSON, or not of this type.
    """
    try:
        value = json.loads(data.decode())
        named = converted(value, kind)
        if limited:
            check_numbers("", named)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: damaged ({error}): {cure}") from error
    return value


def converted(value: Any, kind: type[T], place: str = "") -> T:
    """Converts a JSON value to a type, without the fields that the type does not name.

    Args:
      kind: the type. If it is a dataclass, members of the value may be dataclasses already.
      place: the name of the value for the message, such as "config.optimizer".

    Raises:
      InputError: the value has another type, or the dataclass has raised ValueError.
    """
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place}={_shown.repr(value)}: half a surrogate pair in a text"
        ) from error
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from error
        if error.__cause__:
            raise InputError(f"{place}: {error.__cause__}") from error
        problem, _, path = str(error).partition(" - at `$")
        problem = problem[0].lower() + problem[1:]
        found = list(_places(value, path.removesuffix("`"), place))
        at, wrong = next((each for each in found if _fits(problem, each[1])), found[0])
        at = at.removeprefix(".")
        shown = f"{at}={_shown.repr(wrong)}" if at else _shown.repr(wrong)
        raise InputError(f"{shown}: {problem}") from error


def _places(value: Any, path: str, place: str) -> Iterator[tuple[str, Any]]:
    """Yields each place that a path of msgspec may mean, with its value; `[...]` is any key."""
    if not path:
        yield place, value
        return
    named = isinstance(value, Mapping)
    members = value if isinstance(value, list | tuple | set | frozenset) else ()
    for key, each in value.items() if named else enumerate(members):
        own = f".{key}" if named else f"[{key}]"
        for step, shown in ((own, own), ("[...]", f"[{key!r}]")):
            rest = path[len(step) :]
            if path.startswith(step) and rest[:1] in ("", ".", "["):
                yield from _places(each, rest, place + shown)


def _fits(problem: str, value: Any) -> bool:
    """Whether this value can have the problem."""
    if missing := re.match(r"object missing required field `(.*)`", problem):
        return isinstance(value, Mapping) and missing[1] not in value
    if "of length" in problem:
        return isinstance(value, list) and problem.endswith(f"got {len(value)}")
    name = type(value).__name__
    names = {"dict": "object", "list": "array", "NoneType": "null"}
    return problem.endswith(f"got `{names.get(name, name)}`")


def real(value: Any) -> float | None:
    """The number that a text of a file, or a value of JSON or Parquet, is.

    Returns:
      None if it is no number, or not a finite one of float32.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number that is too great
        return None
    return number if abs(number) <= _LARGEST else None


def whole(value: Any) -> int | None:
    """The whole number that a value is: see `real`. None if it is none, or not one of int32."""
    number = real(value)
    fits = number is not None and number.is_integer() and abs(number) < _WHOLE
    return int(number) if number is not None and fits else None


def check_numbers(name: str, value: Any) -> None:
    """Checks all numbers in a value, which is a number, or dicts and lists that contain numbers.

    Args:
      name: its name, such as "config.grid.restarts" or "--batches"; the last part determines the
        limit.

    Raises:
      InputError: a number is outside its limits; the message names it.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            check_numbers(f"{name}.{key}" if name else key, each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_numbers(name, each)
    elif isinstance(value, int | float) and (problem := _beyond(name, value)):
        raise InputError(f"{name}={_shown.repr(value)}: {problem}")


def _beyond(name: str, value: float) -> str:
    """Says what is implausible in a number, such as "must be at most 1,000"; "" if nothing is."""
    if isinstance(value, float):
        fits = value == 0 or _SMALLEST <= abs(value) <= _LARGEST  # False for NaN
        return "" if fits else f"must be 0, or of a size from {_SMALLEST} to {_LARGEST} (float32)"
    most = _MOST.get(name.rpartition(".")[2].removeprefix("--"), _WHOLE - 1)
    if value > most:
        return f"must be at most {most:,}"
    return "" if value >= -_WHOLE else f"must be at least {-_WHOLE:,}"
