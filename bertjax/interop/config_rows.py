"""config.json of transformers by rows: (field there, field of the spec[, operation]).

Without an operation, both have the same value and type.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from bertjax.base.checks import check_choice
from bertjax.models.encoders.computation import how_computed
from bertjax.models.encoders.contract import EncoderSpec


def _nothing(*_: Any) -> None:
    return None


class Operation(NamedTuple):
    """How a row computes its value, where both sides do not have the same.

    Attributes:
      type: of the field of config.json; None: it may have any.
      read: (field, config.json, which has it) -> the value of the spec's field; None: it decides
        nothing. Raises ValueError for a model that is computed in another way.
      write: spec -> the value in config.json; None: it is not written. Raises ValueError for a
        model that transformers does not compute.
    """

    type: Any = None
    read: Callable[[str, Mapping[str, Any]], Any] = _nothing
    write: Callable[[Any], Any] = _nothing


Row = tuple[str, str] | tuple[str, str, Operation]


class ConfigRows(NamedTuple):
    """The config.json of a family's models.

    Attributes:
      rows: the fields. Of several rows for one field of the spec, the last that a file has decides.
      absent: fields -> what a file without them means, if not the spec's default.
      wanted: fields -> the only values that can be read: another makes another function.
      written: fields -> the values that are always written.
      lost: fields of the spec that no row has, and that change no output.
      roles: the special tokens whose ids it has.
      title: the family's name in messages, if not that of `config.model.encoder`.
      instead: what to do if transformers has no such family.
    """

    rows: tuple[Row, ...] = ()
    absent: Mapping[str, Any] = {}
    wanted: Mapping[str, Any] = {}
    written: Mapping[str, Any] = {}
    lost: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    title: str = ""
    instead: str = ""

    def types(self, spec: type[EncoderSpec]) -> dict[str, Any]:
        """The types of the fields (`bertjax.interop.json_files`).

        Each may be absent; it may be null only if its type says so, where null has a meaning.
        """
        of_spec = {field.name: field.type for field in dataclasses.fields(spec)}
        types: dict[str, Any] = {f"{role}_token_id": int | None for role in self.roles}
        types |= {key: type(value) for key, value in self.wanted.items()}
        for key, name, *operation in self.rows:
            type_ = operation[0].type if operation else of_spec[name]
            types |= {key: type_} if type_ else {}
        return types

    def read(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the spec that a config.json decides; ValueError for another model."""
        self._check_there()
        values = {**self.absent, **config}
        check_wanted(values, self.wanted)
        fields: dict[str, Any] = {}
        for key, name, *operation in self.rows:
            if key in values:
                value = operation[0].read(key, values) if operation else values[key]
                fields |= {} if value is None else {name: value}
        return fields

    def write(self, spec: EncoderSpec) -> dict[str, Any]:
        """The fields of config.json for a spec.

        Raises ValueError if transformers has no such model: a row says so, or a field that no row
        has is not the default.
        """
        self._check_there()
        carried = {*how_computed(spec), *self.lost, *(name for _, name, *_ in self.rows)}
        for field in dataclasses.fields(spec):
            if field.name not in carried:
                check_value(spec, field.name, field.default, self.title)
        config: dict[str, Any] = {}
        for key, name, *operation in self.rows:
            value = operation[0].write(spec) if operation else getattr(spec, name)
            config |= {} if value is None else {key: value}
        return {**config, **self.written}

    def _check_there(self) -> None:
        if self.instead:
            raise ValueError(f"transformers has no {self.title}: {self.instead}")


def same(names: Iterable[str]) -> tuple[Row, ...]:
    """Rows of fields that have the same name on both sides."""
    return tuple((name, name) for name in names)


def check_wanted(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises ValueError if a field of config.json has another value than the only one wanted."""
    for field, value in wanted.items():
        found = config.get(field, value)
        check_only(found == value, field, found, repr(value))


def check_only(fits: bool, field: str, value: Any, which: str) -> None:
    """Raises ValueError unless a value of config.json fits; `which` says what can be read."""
    if not fits:
        raise ValueError(f"{field}={value!r}: only {which} can be read")


def check_value(spec: EncoderSpec, field: str, expected: Any, title: str = "") -> None:
    """Raises ValueError if a field of a spec has another value than transformers' models have."""
    if (value := getattr(spec, field)) != expected:
        note = ": none reads left to right" if field == "causal" else ""
        raise ValueError(
            f"transformers has no {title or spec.encoder} with {field}={value!r}, only "
            f"{expected!r}{note}"
        )


# ----------------------------------------------------------------------------- operations

# transformers' names of activations -> `hidden_act` of a spec. "gelu_new" is "gelu_pytorch_tanh",
# and "silu" is "swish".
ACTIVATIONS = {
    **{"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"},
    **{"silu": "silu", "swish": "silu"},
}
WRITTEN_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu"}


def chosen(name: str, names: Mapping[str, str], written: Mapping[str, str]) -> Operation:
    """The operation of a field with names: name there -> our name, and what is written."""

    def read(field: str, config: Mapping[str, Any]) -> str:
        check_choice(field, config[field], names)
        return names[config[field]]

    def write(spec: Any) -> str:
        if (value := getattr(spec, name)) not in written:
            has = f"only {', '.join(written)}"
            raise ValueError(f"transformers has no {spec.encoder} with {name}={value!r}, {has}")
        return written[value]

    return Operation(str, read, write)


activation = partial(chosen, "hidden_act")


def _value(field: str, config: Mapping[str, Any]) -> Any:
    return config[field]


def _check_four_times(spec: Any) -> None:
    check_value(spec, "intermediate_size", 4 * spec.hidden_size)


ACTIVATION = activation(ACTIVATIONS, WRITTEN_ACTIVATIONS)
IF_CAUSAL = Operation(bool, _value, lambda spec: spec.causal or None)
ONLY_READ = Operation(read=_value)  # another row writes the field of the spec
# The feed-forward is four times as wide as the model, whose width another row has.
FOUR_TIMES = Operation(read=lambda field, config: 4 * config[field], write=_check_four_times)


def only_written(name: str, of_type: Any = None) -> Operation:
    """The operation of a field that repeats one of the spec, which another row reads."""
    return Operation(of_type, write=lambda spec: getattr(spec, name))
