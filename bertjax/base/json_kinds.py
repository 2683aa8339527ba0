"""Checks values read from JSON against tables of kinds.

A kind is one of Python's types for JSON's texts and numbers (a float may be written as a whole
number); `None`, for null; `object`, for anything; `[kind]`, a list of any length; `(kind, kind)`,
a list of this length; `{str: kind}`, an object with any fields; `{"name": kind}`, an object with
these fields and perhaps more, so `{}` is any object; `OptionalFields`; or `Either`.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.base import limits


@dataclasses.dataclass(frozen=True)
class OptionalFields:
    """An object whose fields may be absent; null stands for one that is."""

    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Either:
    """Any of some kinds."""

    kinds: tuple[Any, ...]


def parse(data: bytes) -> Any:
    """The value that JSON in UTF-8 says.

    Raises:
      ValueError: it is not UTF-8, or no JSON.
    """
    try:
        return json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("nested without end") from error


def problem_in(value: Any, kind: Any, place: str = "", *, limited: bool = False) -> str:
    """Describes the first error in a value, with its place; returns "" if there is none.

    Args:
      place: of the value in the file, as "model.vocab.the"; "": the whole.
      limited: whether its numbers are settings, which `bertjax.base.limits` bounds.
    """
    kinds = kind.kinds if isinstance(kind, Either) else (kind,)
    fitting = [each for each in kinds if is_of(value, each)]
    if not fitting:
        wanted = " or ".join(map(_called, kinds))
        if not place:
            return f"must hold {wanted}, not {_shown(value)}"
        return f"{place} is {_shown(value)}, must be {wanted}"
    kind = fitting[0]
    if kind in (int, float):
        problem = limits.problem_with(place, value) if limited else ""
        return problem and f"{place} is {limits.shown(value)}, {problem}"
    if _has_names(kind):
        missing = [name for name in kind if name not in value]
        if missing:
            return f"{place or 'it'} has no {missing[0]!r}"
    parts = _parts(value, kind, place)
    return next(filter(None, (problem_in(*part, limited=limited) for part in parts)), "")


def _parts(value: Any, kind: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yields the members of a list or an object: the value, kind and place of each."""
    inside = f"{place}." if place else ""
    if isinstance(kind, OptionalFields):
        for name, each in kind.fields.items():
            if value.get(name) is not None:
                yield value[name], each, inside + name
    elif _has_names(kind):
        for name, each in kind.items():
            yield value[name], each, inside + name
    elif isinstance(kind, dict):  # whose fields are not names of ours, such as a vocabulary's
        for name, each in value.items():
            yield each, kind[str], f"{place}[{name!r}]"
    elif isinstance(kind, list | tuple):
        kinds = kind if isinstance(kind, tuple) else kind * len(value)
        for number, (each, its_kind) in enumerate(zip(value, kinds, strict=True)):
            yield each, its_kind, f"{place}[{number}]"


def _has_names(kind: Any) -> bool:
    """Whether a kind is that of an object with certain fields."""
    return isinstance(kind, dict) and str not in kind


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, without regard to its members. True is no number."""
    if isinstance(kind, OptionalFields | dict):
        return isinstance(value, dict)
    if isinstance(kind, list):
        return isinstance(value, list)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) == len(kind)
    if kind in (None, object):
        return kind is object or value is None
    return type(value) is kind or (kind is float and type(value) is int)


_WORDS = {
    **{str: "a text", int: "a whole number", float: "a number", bool: "true or false"},
    None: "null",
}


def _called(kind: Any) -> str:
    """A kind in words."""
    if isinstance(kind, tuple):
        return f"a list of {len(kind)}"
    if isinstance(kind, list):
        return "a list"
    return "an object" if isinstance(kind, OptionalFields | dict) else _WORDS[kind]


def _shown(value: Any) -> str:
    """A value in a message: texts and numbers themselves."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:80] if isinstance(value, str) else json.dumps(value)[:80]
