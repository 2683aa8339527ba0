"""Reads a config: one walk over its dataclasses, which names every mistake."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    get_args,
    get_origin,
)

import ml_collections

from bertjax.base.checks import check_choice, did_you_mean
from bertjax.base.errors import InputError
from bertjax.base.limits import COMMA, FREE, TRIED, Key
from bertjax.base.validation import check_numbers, converted, shown

Config: TypeAlias = ml_collections.ConfigDict | Mapping[str, Any]


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]


@dataclasses.dataclass(frozen=True, eq=False)
class OneOf:
    """The mark of a field whose section names its class.

    Attributes:
      key: the key of the section that names it.
      types: the name -> the class.
      alone: whether the name alone stands for its section.
      later: whether the section stays a mapping, and is read when more is known.
      hint: what to do about an unknown key; {name} is the class's name.
    """

    key: str
    types: Mapping[str, type]
    alone: bool = False
    later: bool = False
    hint: str = ""


def config_dict_of(config: Config) -> dict[str, Any]:
    """A config as config.json holds it: nested dicts, and lists for tuples.

    Raises InputError for what is no config, or holds what JSON cannot.
    """
    if not isinstance(config, ml_collections.ConfigDict | Mapping):
        raise InputError(
            f"--config: get_config returned {config!r:.80}: it must return an "
            "ml_collections.ConfigDict, as the files in configs/ do"
        )
    config_dict = (
        config.to_dict() if isinstance(config, ml_collections.ConfigDict) else dict(config)
    )
    try:
        return json.loads(json.dumps(config_dict, default=_unwrapped))
    except ValueError:  # a number of more digits than Python writes
        check_numbers("config", config_dict)
        raise


def _unwrapped(value: Any) -> Any:
    """A number or an array of numpy as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InputError(
        f"--config: {value!r:.80} is no value of a config: it has numbers, texts, switches, lists "
        "and sections"
    )


def flat(config_dict: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model.size": ...} from {"model": {"size": ...}}."""
    found: dict[str, Any] = {}
    for key, value in config_dict.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def without(config_dict: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A config without some keys, which are named as by `flat`."""
    return {
        key: without(value, [k.removeprefix(f"{key}.") for k in keys if k.startswith(f"{key}.")])
        if isinstance(value, Mapping)
        else value
        for key, value in config_dict.items()
        if key not in keys
    }


class Parted(NamedTuple):
    """The type of a field, and its marks."""

    bare: Any
    words: frozenset[str]
    choice: OneOf | None
    key: Key | None

    @classmethod
    def of(cls, type_: Any) -> Self:
        """Takes a type to pieces."""
        bare, *marks = get_args(type_) if get_origin(type_) is Annotated else (type_,)
        words = frozenset(mark for mark in marks if isinstance(mark, str))
        choice = next((mark for mark in marks if isinstance(mark, OneOf)), None)
        return cls(bare, words, choice, next((m for m in marks if isinstance(m, Key)), None))

    @property
    def section(self) -> Any:
        """The dataclass that the field holds: one, one or None, or several; None: it has none."""
        types = (self.bare, *get_args(self.bare))
        return next((type_ for type_ in types if dataclasses.is_dataclass(type_)), None)


def marked(type_: type[_Dataclass], *wanted: str, prefix: str = "") -> set[str]:
    """The keys whose fields have one of the marks, as `flat` names them.

    Of sections that have names or numbers of their own, only the last name of the key.
    """
    found = set()
    for field in dataclasses.fields(type_):
        parted = Parted.of(field.type)
        if parted.words & set(wanted):
            found.add(prefix + field.name)
        else:
            inside = prefix if parted.key else f"{prefix}{field.name}."
            sections = parted.choice.types.values() if parted.choice else [parted.section]
            for section in filter(None, sections):
                found |= marked(section, *wanted, prefix=inside)
    return found


def free_keys(recipe: type[_Dataclass]) -> tuple[str, ...]:
    """The keys that may differ when a run goes on; they do not change what it computes."""
    return tuple(sorted(marked(recipe, FREE, TRIED)))


def read(type_: Any, value: Any, place: str = "config", default: Any = None) -> Any:
    """A value of a config: the dataclass of a section or of the whole, or a value of a key.

    Args:
      type_: the dataclass, or the type of a field, with its marks.
      value: the value. Members may be dataclasses already.
      place: its name, for messages.
      default: has what a section leaves out; None: the class has.

    Raises:
      InputError: a key is unknown or missing, or a value has another type, is outside its limits,
        or is refused by its dataclass; the message names it.
    """
    _, words, choice, key = parted = Parted.of(type_)
    if choice and not choice.later:
        return _instance_of_choice(choice, value, place)
    section = None if key else parted.section
    if section and get_origin(parted.bare) is tuple and isinstance(value, list | tuple):
        return tuple(read(section, each, f"{place}[{n}]") for n, each in enumerate(value))
    if section and not isinstance(value, section | None):
        return _section(section, value, place, default)
    if COMMA in words and not isinstance(value, tuple):
        names = converted(value, str, place).split(",")
        value = tuple(filter(None, (name.strip() for name in names)))
    found = converted(value, type_, place)
    if not (choice or key):  # they are read later, or are read already
        check_numbers(place, found)
    return found


def _instance_of_choice(choice: OneOf, value: Any, place: str) -> Any:
    if isinstance(value, tuple(choice.types.values())):
        return value
    alone = choice.alone and isinstance(value, str)
    fields = {choice.key: value} if alone else dict(converted(value, dict, place))
    name: Any = fields.get(choice.key)
    check_choice(place if choice.alone else f"{place}.{choice.key}", name, choice.types)
    type_: Any = choice.types[name]
    if choice.key not in type_.__dataclass_fields__:
        del fields[choice.key]
    return _section(type_, fields, place, None, choice.hint.format(name=name))


def _section(type_: Any, value: Any, place: str, default: Any, hint: str = "") -> Any:
    fields = {field.name: field for field in dataclasses.fields(type_)}
    values, found = converted(value, dict, place), {}
    for key in values:
        if key not in fields:
            raise InputError(f"{place}.{key}: unknown key: {_known_keys(key, type_)}{hint}")
    for key, each in values.items():
        own_default = fields[key].default  # of a section with other defaults than its class
        own_default = own_default if dataclasses.is_dataclass(own_default) else None
        found[key] = read(fields[key].type, each, f"{place}.{key}", own_default)
    for name, field in fields.items():
        if not default and name not in found and field.default is field.default_factory:
            problem = f"object missing required field `{name}`"
            raise InputError(f"{place}={shown(values)}: {problem}")
    with _config_errors(place):
        return dataclasses.replace(default, **found) if default else type_(**found)


def _known_keys(key: str, type_: type[_Dataclass]) -> str:
    """The known keys, and the one that is like an unknown one."""
    known: list[str] = []
    for field in dataclasses.fields(type_):
        other = Parted.of(field.type).key
        known += other.names if other else [field.name]
    return f"there are {', '.join(known) or 'none'}{did_you_mean(key, known)}"


@contextlib.contextmanager
def about_config(section: str = "") -> Iterator[None]:
    """Converts a ValueError of the block to an InputError about a section of the config."""
    with _config_errors(f"config.{section}" if section else "config"):
        yield


@contextlib.contextmanager
def _config_errors(place: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        between = "." if re.match(r"\w+(\[\d+\])?=", str(error)) else ": "  # a field of it
        raise InputError(f"{place}{between}{error}") from error
