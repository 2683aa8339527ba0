"""Checks the sections of a config, and converts them to dataclasses."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import ml_collections

from bertjax.base.errors import InputError
from bertjax.base.validation import check_numbers, converted

Config: TypeAlias = ml_collections.ConfigDict | Mapping[str, Any]


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]


T = TypeVar("T", bound=_Dataclass)


def plain_config(config: Config) -> dict[str, Any]:
    """A config as config.json holds it: nested dicts, and lists for tuples.

    Raises:
      InputError: it is not a config, or a number in it is implausible.
    """
    if not isinstance(config, ml_collections.ConfigDict | Mapping):
        raise InputError(
            f"--config: get_config returned {config!r:.80}: it must return an "
            "ml_collections.ConfigDict, as the files in configs/ do"
        )
    plain = config.to_dict() if isinstance(config, ml_collections.ConfigDict) else dict(config)
    check_numbers("config", plain)
    return json.loads(json.dumps(plain))


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model.size": ...} from {"model": {"size": ...}}."""
    found: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def without(plain: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A config without some keys, which are named as by `flat`."""
    return {
        key: without(value, [k.removeprefix(f"{key}.") for k in keys if k.startswith(f"{key}.")])
        if isinstance(value, Mapping)
        else value
        for key, value in plain.items()
        if key not in keys
    }


def build(section: str, make: type[T], fields: Any) -> T:
    """The dataclass of a section ("": the whole) of the config.

    Raises:
      InputError: it is not a dict, a key is unknown or missing, or a value has another type or is
        refused by the dataclass.
    """
    place = _place(section)
    known = [field.name for field in dataclasses.fields(make)]
    for key in converted(fields, dict, place):
        if key not in known:
            raise InputError(f"{place}.{key}: unknown key: there are {', '.join(known)}")
    return converted(fields, make, place)


@contextlib.contextmanager
def about_config(section: str = "") -> Iterator[None]:
    """Converts a ValueError of the block to an InputError about a section of the config."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{_place(section)}: {error}") from error


def _place(section: str) -> str:
    return f"config.{section}" if section else "config"
