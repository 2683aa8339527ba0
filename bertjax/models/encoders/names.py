"""Maps parameters to their names and shapes in transformers, and back, by a table.

A family's table has transformers' names. Most kernels of products are stored [out, in] there.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base.errors import InputError

# transformers' names of activations -> `hidden_act` of a spec. "gelu_new" and "gelu_pytorch_tanh"
# are one function.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
WRITTEN_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def read_activation(config: Mapping[str, Any], field: str) -> str:
    """The `hidden_act` that a field of config.json names; gelu without the field.

    Raises:
      ValueError: no encoder here has that activation.
    """
    name = config.get(field, "gelu")
    if name not in ACTIVATIONS:
        raise ValueError(f"{field}={name!r}: must be one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def check_wanted(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises ValueError if a field of config.json has another value than the only one wanted."""
    for field, value in wanted.items():
        if config.get(field, value) != value:
            raise ValueError(f"{field}={config[field]!r}: only {value!r} can be read")


def with_prefix(prefix: str, bare: str) -> Callable[[str], str]:
    """A function that gives names the prefix that is missing if the encoder alone was saved.

    Args:
      bare: the pattern (`re.match`) of names without it.
    """
    return lambda name: prefix + name if re.match(bare, name) else name


class Entry(NamedTuple):
    """One array of a model of transformers, and its place in our parameters.

    Attributes:
      theirs: its name in transformers.
      shape: its shape there.
      ours: the path of our array.
      inner: its shape here.
      part: 0, 1, 2 for query, key and value, which are stacked in one array here.
      transposed: whether it is stored [out, ...in] there; arrays here are [...in, ...out].
    """

    theirs: str
    shape: tuple[int, ...]
    ours: str
    inner: tuple[int, ...]
    part: int | None = None
    transposed: bool = False


def dense(
    theirs: str,
    ours: str,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    part: int | None = None,
    *,
    use_bias: bool = True,
    transposed: bool = True,
) -> Iterator[Entry]:
    """A dense layer: its weight, and its bias if it has one; see `Entry` for `part`."""
    sides = (int(np.prod(inputs)), int(np.prod(outputs)))
    shape, inner = sides[::-1] if transposed else sides, (*inputs, *outputs)
    yield Entry(f"{theirs}.weight", shape, f"{ours}/kernel", inner, part, transposed)
    if use_bias:
        yield Entry(f"{theirs}.bias", sides[1:], f"{ours}/bias", outputs, part)


def norm(theirs: str, ours: str, width: int, *, use_bias: bool = True) -> Iterator[Entry]:
    """A layer normalization: its scale, and its bias if it has one."""
    yield Entry(f"{theirs}.weight", (width,), f"{ours}/scale", (width,))
    if use_bias:
        yield Entry(f"{theirs}.bias", (width,), f"{ours}/bias", (width,))


def to_ours(arrays: Mapping[str, np.ndarray], entries: list[Entry], origin: str) -> dict[str, Any]:
    """Our parameters, nested, from their arrays by name.

    Raises:
      InputError: an array is missing, or has another shape.
    """
    flat: dict[str, Any] = {}
    for entry in entries:
        if entry.theirs not in arrays:
            raise InputError(f"{origin}: {entry.theirs} is missing: the weights are incomplete")
        array = arrays[entry.theirs]
        if array.shape != entry.shape:
            raise InputError(
                f"{origin}: {entry.theirs} has the shape {list(array.shape)}, and should have "
                f"{list(entry.shape)} by the configuration beside it"
            )
        array = array.reshape(len(array), -1).T if entry.transposed else array
        array = array.reshape(entry.inner)
        if entry.part is None:
            flat[entry.ours] = np.ascontiguousarray(array)
        else:
            flat.setdefault(entry.ours, []).append(array)
            if len(flat[entry.ours]) == 3:
                # stack keeps the order of its inputs' memory.
                stacked = np.stack(flat[entry.ours], _stack_axis(entry))
                flat[entry.ours] = np.ascontiguousarray(stacked)
    return unflatten_dict(flat, sep="/")


def to_theirs(params: Mapping[str, Any], entries: list[Entry]) -> dict[str, np.ndarray]:
    """Their arrays by name, from our parameters. The inverse of `to_ours`, bit for bit."""
    flat, arrays = flatten_dict(params, sep="/"), {}
    for entry in entries:
        array = flat[entry.ours]
        if entry.part is not None:
            array = np.take(array, entry.part, _stack_axis(entry))
        if entry.transposed:
            array = array.reshape(-1, entry.shape[0]).T
        array = array.reshape(entry.shape)
        arrays[entry.theirs] = np.ascontiguousarray(array)
    return arrays


def _stack_axis(entry: Entry) -> int:
    """The axis of size 3 in [D, 3, N, H] and in [3, N, H]."""
    return 1 if entry.ours.endswith("/kernel") else 0
