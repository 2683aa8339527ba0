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
from typing import Any, NotRequired, TypedDict, TypeVar, get_args

import msgspec

from bertjax.base.errors import InputError

T = TypeVar("T")

_WHOLE = 2**31  # steps, ids and seeds are int32 on the devices
_SMALLEST, _LARGEST = 1.2e-38, 3.4e38  # limits of float32; devices round smaller numbers to 0

# A number of a file, as most languages write it. Python reads more: "1_000", "nan", other digits.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

# A number beyond its limit, as msgspec says it.
_BEYOND = re.compile(r"expected `(int|float)` (>=|>|<=|<) (\S+)")
_WORDS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Python itself writes no number of more than 4,300 digits."""
        bits = x.bit_length()
        return super().repr_int(x, level) if bits < 10_000 else f"a number of {bits:,} bits"


_shown = _Shown()
_shown.maxstring = 80
shown = _shown.repr  # a value in a message, of a length that one reads


def record(**types: Any) -> Any:
    """The type of a JSON object that has these fields, and may have others."""
    return TypedDict("record", types)  # type: ignore[operator]


def optional(**types: Any) -> Any:
    """The type of a JSON object in which each of these fields may be absent or null."""
    return if_given(**{name: type_ | None for name, type_ in types.items()})


def if_given(**types: Any) -> Any:
    """The type of a JSON object in which each of these fields may be absent, but not null."""
    return record(**{name: NotRequired[type_] for name, type_ in types.items()})


def parsed(data: bytes, type_: Any, origin: Any, hint: str, *, limited: bool = False) -> Any:
    """Parses JSON in UTF-8 from the file `origin`; InputError with `hint` if it is not a `type_`.

    If `limited`, the numbers of the fields that `type_` names are checked by `check_numbers`.
    """
    try:
        value = json.loads(data.decode())
        named = converted(value, type_)
        if limited:
            check_numbers("", named)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: damaged ({error}): {hint}") from error
    return value


def utf8(data: bytes, origin: Any, hint: str = "convert it") -> str:
    """Decodes a text of `origin`; InputError with `hint` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = f"{origin}: not UTF-8 at byte {error.start} ({error.reason})"
        raise InputError(f"{place}: {hint}") from error


def converted(value: Any, type_: type[T], place: str = "") -> T:
    """Converts a JSON value to a type, without the fields that the type does not name.

    If that is a dataclass, members of the value may be dataclasses already. An InputError names
    the value by its `place`, such as "config.optimizer".
    """
    try:
        return msgspec.convert(value, type_)
    except UnicodeEncodeError as error:
        raise InputError(f"{place}={shown(value)}: half a surrogate pair in a text") from error
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
        value_there = f"{at}={shown(wrong)}" if at else shown(wrong)
        raise InputError(f"{value_there}: {_in_words(problem, type_)}") from error


def limits_in_words(type_: Any) -> str:
    """The limits of a number's type, as "in [0, 1)", "at least 1" or ""."""
    meta = next((each for each in get_args(type_) if isinstance(each, msgspec.Meta)), None)
    signs = dict(ge="[", gt="(", le="]", lt=")")
    found = {sign: x for sign in signs if (x := getattr(meta, sign, None)) is not None}
    if len(found) == 2:
        (low, least), (high, most) = found.items()
        if (low, high) == ("ge", "le"):
            return f"from {least:,} to {most:,}"
        return f"in {signs[low]}{least}, {most}{signs[high]}"
    words = dict(ge="at least", gt="above", le="at most", lt="below")
    return "".join(f"{words[sign]} {x:,}" for sign, x in found.items())


def _in_words(problem: str, type_: Any) -> str:
    """A problem of msgspec; where a number is beyond a limit, as "must be at least 1"."""
    if not (beyond := _BEYOND.fullmatch(problem)):
        return problem
    of, sign, limit = beyond.groups()
    if of == "float" and (words := limits_in_words(type_)):
        return f"must be {words}"
    return f"must be {_WORDS[sign]} {float(limit):,.10g}"


def _places(value: Any, path: str, place: str) -> Iterator[tuple[str, Any]]:
    """Yields each place that a path of msgspec may mean, with its value; `[...]` is any key."""
    if not path:
        yield place, value
        return
    named = isinstance(value, Mapping)
    members = value if isinstance(value, list | tuple | set | frozenset) else ()
    for key, member in value.items() if named else enumerate(members):
        own = f".{key}" if named else f"[{key}]"
        for step, name in ((own, own), ("[...]", f"[{key!r}]")):
            rest = path[len(step) :]
            if path.startswith(step) and rest[:1] in ("", ".", "["):
                yield from _places(member, rest, place + name)


def _fits(problem: str, value: Any) -> bool:
    if missing := re.match(r"object missing required field `(.*)`", problem):
        return isinstance(value, Mapping) and missing[1] not in value
    if "of length" in problem:
        return isinstance(value, list) and problem.endswith(f"got {len(value)}")
    name = type(value).__name__
    names = {"dict": "object", "list": "array", "NoneType": "null"}
    return problem.endswith(f"got `{names.get(name, name)}`")


def real(value: Any) -> float | None:
    """The number that a text, or a value of JSON or Parquet, is; None if not finite in float32."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number that is too great
        return None
    return number if abs(number) <= _LARGEST else None


def integer(value: Any) -> int | None:
    """The whole number that a value is: see `real`. None if it is none, or not one of int32."""
    number = real(value)
    fits = number is not None and number.is_integer() and abs(number) < _WHOLE
    return int(number) if number is not None and fits else None


def check_numbers(name: str, value: Any) -> None:
    """Raises InputError if a number of a value, or in its dicts and lists, is beyond limits."""
    if isinstance(value, dict):
        for key, each in value.items():
            check_numbers(f"{name}.{key}" if name else key, each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_numbers(name, each)
    elif isinstance(value, int | float) and (problem := _implausibility(value)):
        raise InputError(f"{name}={shown(value)}: {problem}")


def _implausibility(value: float) -> str:
    """Says what is implausible in a number, such as "must be at most 1,000"; "" if nothing is."""
    if isinstance(value, float):
        fits = value == 0 or _SMALLEST <= abs(value) <= _LARGEST  # False for NaN
        return "" if fits else f"must be 0, or of a size from {_SMALLEST} to {_LARGEST} (float32)"
    if value >= _WHOLE:
        return f"must be at most {_WHOLE - 1:,}"
    return "" if value >= -_WHOLE else f"must be at least {-_WHOLE:,}"
