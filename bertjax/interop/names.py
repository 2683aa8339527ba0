"""Maps parameters to their names and shapes in transformers, and back, by tables of rows.

A row is (path of our module or array in its part, their name[, form]). The shapes are those of the
model itself; what a model does not have, such as a bias, has no entry. `{i}` in a row is a number
in the path: that of a layer. `(a|b)` in their name means that a and b are stacked in one array
here, on the first axis of the outputs.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.interop.config_rows import ConfigRows
from bertjax.models.encoders.computation import determined
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.head_specs import HEAD_SPECS


class Formed(NamedTuple):
    """How an array is stored in transformers.

    Attributes:
      transposed: whether it is stored [out, ...in] there; arrays here are [...in, ...out].
      order: the number here of each output there; (): they have one order.
    """

    shape: tuple[int, ...]
    transposed: bool = False
    order: tuple[int, ...] = ()


# Our shape, and how many of its axes are inputs of a product (0: it is no kernel) -> their form.
Form = Callable[[tuple[int, ...], int], Formed]
Row = tuple[str, str] | tuple[str, str, Form]
Arrays = Mapping[str, tuple[tuple[int, ...], int]]  # path -> the arguments of a form
_ENDINGS = {"/kernel": ".weight", "/scale": ".weight", "/bias": ".bias"}  # of a module's arrays


class Names(NamedTuple):
    """The names that transformers has for a family, its settings and its arrays.

    Attributes:
      classes: kind of `bertjax.models.encoders.head_types` -> name of the class.
      encoder: the rows of the encoder; their names stand after `bare`.
      bare: the prefix of names that is missing where the encoder was saved alone.
      parts: another part, or (part, kind) if it has other names in models of that kind -> its rows.
      copies: names of arrays -> the array that each repeats, such as a decoder that is tied to the
        embeddings.
      buffers: patterns (`re.fullmatch`) of the names of arrays that are constants, not weights.
      spellings: pairs (pattern, replacement) that give an array the name of the rows (`re.sub`).
      last_token: whether classes of whole texts predict from the last token, as a model must that
        reads left to right. Others predict from the first.
      elsewhere: the kinds whose class is not in transformers, whose AutoModel reads the encoder.
      pads_left: whether its tokenizer puts padding before the text.
    """

    classes: Mapping[str, str]
    encoder: tuple[Row, ...]
    bare: str = ""
    parts: Mapping[str | tuple[str, str], tuple[Row, ...]] = {}
    copies: Mapping[str, str] = {}
    buffers: tuple[str, ...] = ()
    spellings: tuple[tuple[str, str], ...] = ()
    config: ConfigRows = ConfigRows()
    last_token: bool = False
    elsewhere: tuple[str, ...] = ()
    pads_left: bool = False

    def one_spelling(self, name: str) -> str:
        """The name of the rows, for a name in any of its spellings."""
        for pattern, replacement in self.spellings:
            name = re.sub(pattern, replacement, name)
        return name

    def is_buffer(self, name: str) -> bool:
        """Whether an array, in any spelling, is a constant, and not a weight."""
        name = self.one_spelling(name)
        return any(re.fullmatch(pattern, name) for pattern in self.buffers)

    def rows(self, part: str, head_type: str) -> tuple[Row, ...]:
        """The rows of a part besides the encoder; none: transformers does not have it."""
        return self.parts.get((part, head_type), self.parts.get(part, ()))

    def owner(self, name: str, encoder: str, heads: Iterable[str], head_type: str) -> str | None:
        """The part that an array of transformers belongs to; None: no known part.

        The longest beginning of the name, in the spelling of the rows, decides: a row, or the
        module of a part's rows. One of `heads`, the other parts of the kind, wins over others of
        that name.
        """
        fits = {encoder: (len(self.bare), False)} if name.startswith(self.bare) else {}
        for part in dict.fromkeys(key if isinstance(key, str) else key[0] for key in self.parts):
            for path, hf_name, *_ in self.rows(part, head_type):
                module = hf_name.rpartition(".")[0] if path else ""
                for begin in filter(None, (*_alternatives(hf_name), module)):
                    if f"{name}.".startswith(f"{begin}."):
                        fit = len(f"{begin}."), begin != module
                        fits[part] = max(fits.get(part, fit), fit)
        return max(fits, key=lambda part: (fits[part], part in heads), default=None)


class Entry(NamedTuple):
    """One array of a model of transformers, and its place in our parameters.

    Attributes:
      shape, transposed, order: those of `Formed`.
      inner: its shape here.
      stack_index: its place among those stacked in one array here, such as query, key, value.
    """

    hf_name: str
    shape: tuple[int, ...]
    path: str
    inner: tuple[int, ...]
    stack_index: int | None = None
    transposed: bool = False
    order: tuple[int, ...] = ()


# ---------------------------------------------------------------------------------- forms


def _flat(shape: tuple[int, ...], inputs: int) -> Formed:
    """The usual form of a module's array: kernels [out, in], others in one axis."""
    sides = (prod(shape[inputs:]), prod(shape[:inputs]))
    return Formed(sides, True) if inputs else Formed(sides[:1])


def without_transpose(shape: tuple[int, ...], inputs: int) -> Formed:
    """Kernels [in, out], as of Conv1D."""
    return Formed(_flat(shape, inputs).shape[::-1])


def outputs_first(shape: tuple[int, ...], inputs: int) -> Formed:
    """A kernel [out, ...in] that keeps its axes."""
    return Formed((*shape[inputs:], *shape[:inputs]), True)


def after_ones(count: int) -> Form:
    """As many axes of size 1 before those of the array."""
    return lambda shape, _: Formed((1,) * count + shape)


def planes_by_head(shape: tuple[int, ...], inputs: int) -> Formed:
    """A kernel [D, 3, N, H] as [N 3 H, D].

    Rotary positions turn the columns (2 i, 2 i + 1) of queries and keys there, where they turn
    (i, i + H / 2) here.
    """
    outputs = shape[inputs:]
    number = np.arange(prod(outputs)).reshape(outputs)
    halves = number[:2].reshape(2, outputs[1], 2, -1)
    turned = halves.swapaxes(-1, -2).reshape(number[:2].shape)
    order = np.concatenate([turned, number[2:]]).swapaxes(0, 1)
    return _flat(shape, inputs)._replace(order=tuple(order.ravel().tolist()))


def _same_shape(shape: tuple[int, ...], _: int) -> Formed:
    """The usual form of a row that is an array."""
    return Formed(shape)


# -------------------------------------------------------------------------------- entries


def array_entries(
    names: Names, parts: Iterable[str], spec: EncoderSpec, head_type: str, num_classes: int
) -> list[Entry]:
    """The arrays of parts of a model, in canonical storage, with transformers' names of them.

    A part that transformers does not have, such as BERT's head for replaced tokens, has no arrays.
    A part of another kind than `head_type` has the shape of the first kind that has it.
    """
    found: list[Entry] = []
    parts = tuple(parts)
    classes = num_classes if "classifier" in parts else 0
    for part in parts:
        is_encoder = part == spec.encoder
        rows = names.encoder if is_encoder else names.rows(part, head_type)
        if rows:
            known = family_of(spec).heads
            having = [each for each in known if is_encoder or part in known[each]]
            arrays = arrays_of(spec, head_type if head_type in having else having[0], classes)
            found += expand(rows, part, arrays, names.bare if is_encoder else "")
    return found


def arrays_of(spec: EncoderSpec, head_type: str, num_classes: int) -> Arrays:
    """The shapes of a model's parameters in canonical storage, by path, as `Form` takes them."""
    few = min(2, spec.num_hidden_layers)  # all layers after the first are alike
    sizes = {key: value for key, value in determined(spec).items() if key != "encoder"}
    arrays = dict(_arrays(type(spec)(**sizes | {"num_hidden_layers": few}), head_type, num_classes))
    for path in [path for path in arrays if "/layer_1/" in path]:
        for layer in range(few, spec.num_hidden_layers):
            arrays[path.replace("/layer_1/", f"/layer_{layer}/")] = arrays[path]
    return arrays


@functools.lru_cache(maxsize=256)
def _arrays(spec: EncoderSpec, head_type: str, num_classes: int) -> Arrays:
    head_spec = HEAD_SPECS[head_type]
    module = head_spec.build(spec, num_classes)
    sizes = {axis: {"B": 1, "C": 2, "S": 8}[axis] for axis in head_spec.axes}
    sizes["S"] = min(sizes["S"], spec.max_position_embeddings)

    def init(inputs: dict[str, jax.Array]) -> dict:
        return module.init(jax.random.key(0), inputs, deterministic=True)["params"]

    boxes = flatten_dict(jax.eval_shape(init, head_spec.inputs(spec, **sizes)), sep="/")
    return {
        path: (box.value.shape, path.endswith("/kernel") * (1 + (box.names[0] == axes.HEADS)))
        for path, box in boxes.items()
    }


def expand(rows: Iterable[Row], part: str, arrays: Arrays, bare: str = "") -> Iterator[Entry]:
    """The entries of a part's rows, layer by layer; `arrays` by path, as `Form` takes them."""
    numbers = [int(number) for path in arrays for number in re.findall(r"_(\d+)\b", path)]
    for is_numbered, group in itertools.groupby(rows, lambda row: "{i}" in row[0]):
        some = list(group)
        for i in range(max(numbers, default=-1) + 1 if is_numbered else 1):
            for path, hf_name, *form in some:
                place = "/".join(filter(None, (part, path.format(i=i))))
                yield from _entries_of_row(place, bare + hf_name.format(i=i), form, arrays)


def _entries_of_row(place: str, hf_name: str, form: list[Form], arrays: Arrays) -> Iterator[Entry]:
    """The entries of a row without numbers; form: one, or none for the usual one."""
    stacked = _alternatives(hf_name)
    for number, name in enumerate(stacked):
        for ending, their_ending in ({"": ""} if place in arrays else _ENDINGS).items():
            path = place + ending
            if path not in arrays:
                continue
            inner, inputs = arrays[path]
            if len(stacked) > 1:
                assert inner[inputs] == len(stacked), f"{path}: {inner}, and {hf_name}"
                inner = inner[:inputs] + inner[inputs + 1 :]
            usual = _flat if ending else _same_shape
            shape, transposed, order = (form[0] if form else usual)(inner, inputs)
            stack_index = number if len(stacked) > 1 else None
            yield Entry(name + their_ending, shape, path, inner, stack_index, transposed, order)


def _alternatives(hf_name: str) -> list[str]:
    """The names in a row's: a.(q|k) -> a.q, a.k."""
    before, _, rest = hf_name.partition("(")
    inside, _, after = rest.partition(")")
    return [before + each + after for each in inside.split("|")]


# --------------------------------------------------------------------------------- arrays


def to_jax(arrays: Mapping[str, np.ndarray], entries: list[Entry], origin: str) -> dict[str, Any]:
    """Our parameters, nested, from their arrays by name; InputError if one does not fit."""
    flat: dict[str, Any] = {}
    stacks: dict[str, list[np.ndarray]] = {}
    for entry in entries:
        if entry.hf_name not in arrays:
            raise InputError(f"{origin}: {entry.hf_name} is missing: the weights are incomplete")
        array = arrays[entry.hf_name]
        if array.shape != entry.shape:
            raise InputError(
                f"{origin}: {entry.hf_name} has the shape {list(array.shape)}, and should have "
                f"{list(entry.shape)} by the configuration next to it"
            )
        array = array[np.argsort(entry.order)] if entry.order else array
        array = array.reshape(len(array), -1).T if entry.transposed else array
        array = array.reshape(entry.inner)
        if entry.stack_index is None:
            flat[entry.path] = np.ascontiguousarray(array)
        else:
            stacks.setdefault(entry.path, []).append(array)
    for path, stack in stacks.items():
        # stack keeps the order of its inputs' memory.
        flat[path] = np.ascontiguousarray(np.stack(stack, _stack_axis(path)))
    return unflatten_dict(flat, sep="/")


def to_hf(params: Mapping[str, Any], entries: list[Entry]) -> dict[str, np.ndarray]:
    """Their arrays by name, from our parameters. The inverse of `to_jax`, bit for bit."""
    flat, arrays = flatten_dict(params, sep="/"), {}
    for entry in entries:
        array = flat[entry.path]
        if entry.stack_index is not None:
            array = np.take(array, entry.stack_index, _stack_axis(entry.path))
        if entry.transposed:
            array = array.reshape(-1, entry.shape[0]).T
        array = array.reshape(entry.shape)
        array = array[list(entry.order)] if entry.order else array
        arrays[entry.hf_name] = np.ascontiguousarray(array)
    return arrays


def _stack_axis(path: str) -> int:
    """The axis of stacked arrays: the first output in [D, 3, N, H], and the first in [3, N, H]."""
    return 1 if path.endswith("/kernel") else 0
