"""What each parameter is called elsewhere, and how it lies there: one table, read both ways.

The names are those of transformers' `BertFor...` classes (modeling_bert.py), whose products are
stored [out, in]; those of google-research/bert (modeling.py, [in, out]) follow by rule.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.errors import InputError
from bertjax.model.spec import BertSpec

# The parts of a model (`bertjax.model.architectures`), and how the names of their arrays begin.
_PREFIXES = (
    ("pooler", "bert.pooler."),
    ("bert", "bert."),
    ("masked_lm", "cls.predictions."),
    ("next_sentence_head", "cls.seq_relationship."),
    ("classifier", "classifier."),
    ("span", "qa_outputs."),
)


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


def _dense(theirs, ours, inputs, outputs, part=None) -> Iterator[Entry]:
    sides = (int(np.prod(outputs)), int(np.prod(inputs)))
    yield Entry(f"{theirs}.weight", sides, f"{ours}/kernel", (*inputs, *outputs), part)
    yield Entry(f"{theirs}.bias", sides[:1], f"{ours}/bias", outputs, part)


def _norm(theirs, ours, width) -> Iterator[Entry]:
    yield Entry(f"{theirs}.weight", (width,), f"{ours}/scale", (width,))
    yield Entry(f"{theirs}.bias", (width,), f"{ours}/bias", (width,))


def _encoder(spec: BertSpec) -> Iterator[Entry]:
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    heads = (spec.num_attention_heads, spec.head_width)
    for theirs, ours, rows in (
        ("word_embeddings", "token", spec.vocab_size),
        ("position_embeddings", "position", spec.max_position_embeddings),
        ("token_type_embeddings", "segment", spec.type_vocab_size),
    ):
        shape = (rows, *width)
        yield Entry(f"bert.embeddings.{theirs}.weight", shape, f"bert/embeddings/{ours}", shape)
    yield from _norm("bert.embeddings.LayerNorm", "bert/embeddings/norm", *width)
    for i in range(spec.num_hidden_layers):
        theirs, ours = f"bert.encoder.layer.{i}", f"bert/encoder/layer_{i}"
        for part, name in enumerate(("query", "key", "value")):
            name = f"{theirs}.attention.self.{name}"
            yield from _dense(name, f"{ours}/attention/qkv", width, heads, part)
        yield from _dense(
            f"{theirs}.attention.output.dense", f"{ours}/attention/output", heads, width
        )
        yield from _norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/attention_norm", *width)
        yield from _dense(f"{theirs}.intermediate.dense", f"{ours}/intermediate", width, inner)
        yield from _dense(f"{theirs}.output.dense", f"{ours}/output", inner, width)
        yield from _norm(f"{theirs}.output.LayerNorm", f"{ours}/output_norm", *width)


def _masked_lm(spec: BertSpec) -> Iterator[Entry]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    yield from _dense("cls.predictions.transform.dense", "masked_lm/transform", width, width)
    yield from _norm("cls.predictions.transform.LayerNorm", "masked_lm/norm", *width)
    yield Entry("cls.predictions.bias", rows, "masked_lm/bias", rows)


def table(parts: tuple[str, ...], spec: BertSpec, num_classes: int) -> list[Entry]:
    """The arrays of some parts of a model, in plain storage (`bertjax.model.storage`).

    Args:
      num_classes: the width of the classifier, if it is among the parts.
    """
    width = (spec.hidden_size,)
    entries = {
        "bert": _encoder(spec),
        "pooler": _dense("bert.pooler.dense", "pooler/dense", width, width),
        "masked_lm": _masked_lm(spec),
        "next_sentence_head": _dense("cls.seq_relationship", "next_sentence_head", width, (2,)),
        "classifier": _dense("classifier", "classifier", width, (num_classes,)),
        "span": _dense("qa_outputs", "span", width, (2,)),
    }
    return [entry for part in parts for entry in entries[part]]


def part_of(theirs: str) -> str | None:
    """The part of a model that an array of theirs belongs to; None: to none that we know."""
    return next((part for part, prefix in _PREFIXES if theirs.startswith(prefix)), None)


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
    """Where 3 stands in [D, 3, N, H] and in [3, N, H]."""
    return 1 if entry.is_product else 0


def in_hugging_face_terms(name: str) -> str:
    """One spelling of a name: with the prefix "bert.", without gamma and beta.

    BertModel alone is saved without the prefix; gamma and beta are names of before 2019.
    """
    if re.match(r"(embeddings|encoder|pooler)\.", name):
        name = f"bert.{name}"
    name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", name)
    return re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)


def from_google(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """A variable of google-research/bert in Hugging Face's terms: name and orientation.

    Products are stored [in, out] there, except the next-sentence head's.
    """
    if name.endswith("/kernel"):
        name, array = f"{name.removesuffix('/kernel')}/weight", array.T
    name = re.sub(r"/(word|position|token_type)_embeddings$", r"/\1_embeddings/weight", name)
    name = re.sub(r"/output_weights$", "/weight", name)
    name = re.sub(r"/output_bias$", "/bias", name)
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    return in_hugging_face_terms(name.replace("/", ".")), array
