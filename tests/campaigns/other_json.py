"""Changes JSON values at one place."""

import json
from collections.abc import Iterator
from typing import Any

# Values of every type, and numbers that are seldom right.
OTHER_VALUES = (None, "text", "7", 7, -1, 0, 0.5, True, [], {}, [[]], float("nan"), 10**20)
NESTED = "[" * 100_000  # deeper than any reader goes

Place = tuple[str | int, ...]


def places(value: Any, inside: Place = ()) -> Iterator[Place]:
    """Yields the paths of all values inside a value, the outer ones first."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield *inside, key
            yield from places(each, (*inside, key))


def at(value: Any, place: Place) -> Any:
    """The value at a path."""
    for key in place:
        value = value[key]
    return value


def with_other(value: Any, place: Place, new: Any) -> Any:
    """A copy with `new` at a path."""
    copy = json.loads(json.dumps(value))
    at(copy, place[:-1])[place[-1]] = new
    return copy


def without(value: Any, place: Place) -> Any:
    """A copy without the value at a path."""
    copy = json.loads(json.dumps(value))
    del at(copy, place[:-1])[place[-1]]
    return copy


def others(was: Any) -> list[Any]:
    """Values of another type, or another kind of number."""
    return [new for new in OTHER_VALUES if type(new) is not type(was) or new != was]
