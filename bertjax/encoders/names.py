"""Maps parameters to their names and shapes in transformers, and back, by a table.

A family's table is of transformers' names; the kernels of products are stored [out, in] there.
"""

from collections.abc import Iterator, Mapping
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


class Entry(NamedTuple):
    """One array of theirs, and where it lies here.

    Attributes:
      theirs: its name.
      shape: its shape there.
      ours: the path of our array.
      inner: its shape here.
      part: 0, 1, 2 for query, key and value, which are stacked in one array here.
    """

    theirs: str
    shape: tuple[int, ...]
    ours: str
    inner: tuple[int, ...]
    part: int | None = None

    @property
    def is_product(self) -> bool:
        """Whether it is the matrix of a product, which is transposed here."""
        return self.ours.endswith("/kernel")


def dense(theirs, ours, inputs, outputs, part=None, *, use_bias=True) -> Iterator[Entry]:
    """A dense layer: its weight, and its bias if it has one; `part` of `Entry`."""
    sides = (int(np.prod(outputs)), int(np.prod(inputs)))
    yield Entry(f"{theirs}.weight", sides, f"{ours}/kernel", (*inputs, *outputs), part)
    if use_bias:
        yield Entry(f"{theirs}.bias", sides[:1], f"{ours}/bias", outputs, part)


def norm(theirs, ours, width, *, use_bias=True) -> Iterator[Entry]:
    """A layer normalization: its scale, and its bias if it has one."""
    yield Entry(f"{theirs}.weight", (width,), f"{ours}/scale", (width,))
    if use_bias:
        yield Entry(f"{theirs}.bias", (width,), f"{ours}/bias", (width,))


def to_ours(arrays: Mapping[str, np.ndarray], entries: list[Entry], origin: str) -> dict[str, Any]:
    """Our parameters, nested, from their arrays by name.

    Raises:
      InputError: an array that is missing, or of another shape.
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
        array = (array.T if entry.is_product else array).reshape(entry.inner)
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
        array = (
            array.reshape(entry.shape[::-1]).T if entry.is_product else array.reshape(entry.shape)
        )
        arrays[entry.theirs] = np.ascontiguousarray(array)
    return arrays


def _stack_axis(entry: Entry) -> int:
    """The axis of size 3 in [D, 3, N, H] and in [3, N, H]."""
    return 1 if entry.is_product else 0
