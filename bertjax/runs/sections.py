"""The sections of a config: they are checked, and become dataclasses."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

import ml_collections

from bertjax.base.errors import InputError
from bertjax.base.json_kinds import is_of
from bertjax.base.limits import check_numbers

T = TypeVar("T")


def plain_config(config: ml_collections.ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """A config as config.json holds it: nested dicts, and lists for tuples.

    Raises:
      InputError: no config, or a number in it that cannot be meant.
    """
    if not isinstance(config, ml_collections.ConfigDict | Mapping):
        raise InputError(
            f"--config: get_config returned {config!r:.80}: it must return an "
            "ml_collections.ConfigDict, as the files in configs/ do"
        )
    plain = config.to_dict() if isinstance(config, ml_collections.ConfigDict) else dict(config)
    plain = json.loads(json.dumps(plain))
    check_numbers("config", plain)
    return plain


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model.size": ...} from {"model": {"size": ...}}."""
    found = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def check_section(prefix: str, fields: Any) -> None:
    """Raises InputError for a section that is no dict."""
    if not isinstance(fields, Mapping):
        raise InputError(f"{prefix}={fields!r}: must be a dict of keys")


def build(section: str, make: type[T], fields: Mapping[str, Any]) -> T:
    """make(**fields), and any mistake raised as one in a section ("": the whole) of the config."""
    prefix = f"config.{section}" if section else "config"
    check_section(prefix, fields)
    if dataclasses.is_dataclass(make):
        check_types(prefix, make, fields)
    try:
        return make(**fields)
    except TypeError as error:  # an unknown key, or a missing one
        message = str(error).split("()", 1)[-1].replace("argument", "key").strip()
        raise InputError(f"{prefix}: {message}") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{prefix}: {error}") from error


# How messages about a config call the types of fields.
_WORDS = {
    **{int: "a whole number", float: "a number", str: "a text", bool: "True or False"},
    Mapping: "a dict of keys",
}


def check_types(prefix: str, make: type, fields: Mapping[str, Any]) -> None:
    """Raises InputError for a field of a dataclass that is of another type than it says."""
    for field in dataclasses.fields(make):
        kind = get_origin(field.type) or field.type
        if kind not in _WORDS or field.name not in fields:
            continue
        value = fields[field.name]
        if not is_of(value, {} if kind is Mapping else kind):
            raise InputError(f"{prefix}.{field.name}={value!r:.80}: must be {_WORDS[kind]}")
