"""Proves that written weights are the same model: compares its outputs before and after."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bertjax.base.fields import NUM_CHARACTERS, WORD_LENGTH
from bertjax.interop.pretrained import Pretrained
from bertjax.models.heads.embedding import COUNTED, LATE
from bertjax.text.prompted import prompted

# The tolerance of outputs, by the dtype of their computation; relative to the greatest output if
# that is above 1. With weights in 8 bits, it depends on the model, and is only told.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "int8": float("inf")}

_ROWS, _CHOICES = 6, 3
_PAIRS, _LENGTHS, _ALIKE = 12, (8, 24, 61), 0.3


def random_inputs(pretrained: Pretrained) -> dict[str, np.ndarray]:
    """Random texts of all lengths, one with its padding on the unusual side, for the encoder.

    They are int32 [6, S], or [2, 3, S] for multiple choice; words as characters are [6, S, W].
    """
    rng = np.random.default_rng(0)
    length = min(61, pretrained.spec.max_position_embeddings)
    ends = np.linspace(1, length, _ROWS).astype(int)[:, None]
    places = np.arange(length)
    mask = places < ends
    mask[1] = mask[1, ::-1]
    mask = mask[:, ::-1] if pretrained.names.pads_left else mask
    if pretrained.family.reads_characters:
        words = rng.integers(1, NUM_CHARACTERS, (*mask.shape, WORD_LENGTH)) * mask[..., None]
        return {"characters": words.astype(np.int32), "input_mask": mask.astype(np.int32)}
    return _inputs(pretrained, _random_ids(pretrained, rng, mask.shape), mask, ends)


def random_pairs(pretrained: Pretrained) -> list[dict[str, np.ndarray]]:
    """Batches of several lengths of random texts, each with a text that is like it.

    A batch is int32 [24, S], or [8, 3, S] for multiple choice. Text n + 12 has some tokens of
    text n, at their places.
    """
    rng, batches = np.random.default_rng(1), []
    for length in sorted({min(each, pretrained.spec.max_position_embeddings) for each in _LENGTHS}):
        texts, other_texts = _random_ids(pretrained, rng, (2, _PAIRS, length))
        like = np.where(rng.random(texts.shape) < _ALIKE, texts, other_texts)
        ids, ends = np.concatenate([texts, like]), np.full((2 * _PAIRS, 1), length)
        batches.append(_inputs(pretrained, ids, np.ones(ids.shape, bool), ends))
    return batches


def _random_ids(pretrained: Pretrained, rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Random tokens. A model may recognize padding by its id, so none gets it."""
    pad_id, size = pretrained.tokenizer.pad_id, pretrained.tokenizer.vocabulary_size
    return (pad_id + rng.integers(1, size, shape)) % size


def _inputs(
    pretrained: Pretrained, ids: np.ndarray, mask: np.ndarray, ends: np.ndarray
) -> dict[str, np.ndarray]:
    """The inputs of an encoder: tokens where the mask is, of which half are of a second text."""
    segments = (np.arange(mask.shape[1]) >= ends // 2) & mask
    inputs = {
        "input_ids": np.where(mask, ids, pretrained.tokenizer.pad_id),
        "input_mask": mask,
        "token_type_ids": segments % max(1, pretrained.spec.type_vocab_size),
    }
    choices = (_CHOICES,) if "C" in pretrained.head_spec.axes else ()
    shape = (-1, *choices, mask.shape[1])
    names = pretrained.family.text_inputs
    return {name: inputs[name].reshape(shape).astype(np.int32) for name in names}


def outputs(module: nn.Module, params: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The outputs of a module for `random_inputs`, by name, without dropout."""
    infer = jax.jit(partial(module.apply, deterministic=True))
    return jax.tree.map(np.asarray, infer({"params": params}, dict(inputs)))


def vectors(pretrained: Pretrained, texts: Sequence[str], *, query: bool) -> list[np.ndarray]:
    """The vectors of texts by a model with an `embedding`: float32 [D], or [S, D], a text."""
    embedding = pretrained.embedding
    assert embedding
    encoded = prompted(
        texts,
        pretrained.tokenizer,
        prompt=embedding.prompt(query),
        count_prompt=embedding.count_prompt,
        max_length=embedding.length(query, pretrained.spec.max_position_embeddings),
    )
    length = max(len(text.ids) for text in encoded)

    def padded(rows: list[np.ndarray], value: int = 0) -> np.ndarray:
        pads = [(0, length - len(row)) for row in rows]
        return np.stack([np.pad(*x, constant_values=value) for x in zip(rows, pads, strict=True)])

    inputs = {
        "input_ids": padded([text.ids for text in encoded], pretrained.tokenizer.pad_id),
        "input_mask": padded([np.ones_like(text.ids) for text in encoded]),
        "token_type_ids": padded([text.token_types for text in encoded]),
        COUNTED: padded([text.counted for text in encoded]),
    }
    found = outputs(pretrained.model(), pretrained.params, inputs)["vectors"]
    if embedding.kind != LATE:
        return list(found)
    return [rows[mask > 0] for rows, mask in zip(found, inputs[COUNTED], strict=True)]


def greatest_difference(
    expected: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> float:
    """The greatest absolute difference of the outputs that `expected` names.

    Outputs at padding have no meaning and do not count. An output of a whole sequence does not
    count if its padding is on the unusual side, where [CLS] is otherwise.

    Raises:
      RuntimeError: an output differs by more than the tolerance.
    """
    mask, worst = inputs["input_mask"] > 0, 0.0
    of_cls = max(mask[..., 0], mask[..., -1], key=np.sum)
    for name, output in expected.items():
        real = mask if output.shape[: mask.ndim] == mask.shape else of_cls
        worst = max(worst, difference(name, output[real], found[name][real], dtype))
    return worst


def difference(name: str, expected: np.ndarray, found: np.ndarray, dtype: str = "float32") -> float:
    """The greatest absolute difference of two arrays; RuntimeError beyond the tolerance."""
    if expected.shape != found.shape:
        raise RuntimeError(f"the written model gives {name!r} {found.shape}, not {expected.shape}")
    greatest = float(np.abs(expected - found).max())
    if not greatest <= _TOLERANCE[dtype] * max(1.0, float(np.abs(expected).max())):
        raise RuntimeError(f"the written model gives another {name!r}: {greatest:.1e} off")
    return greatest


def decisions(name: str, output: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Takes the choices of a user from an output: nearest texts, classes, pieces, places, an order.

    `output` is [B, ...]; `mask`, bool [B, S] or [B, C, S], is True for tokens. The result has whole
    numbers or truth values in one dimension, of which two models may differ in some.
    """
    if name == "sequence":
        vectors = (output * mask[..., None]).sum(1)
        vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
        alike = vectors @ vectors.T
        np.fill_diagonal(alike, -np.inf)
        return alike.argmax(-1)
    if name == "replaced":
        return output[mask] > 0
    if name in ("start", "end"):
        return np.where(mask, output, -np.inf).argmax(-1)
    if output.shape[-1] == 1:  # a number of each text, by which they are ordered
        return (output > output.T).ravel()
    chosen = output.argmax(-1)
    return chosen[mask] if chosen.shape == mask.shape else chosen
