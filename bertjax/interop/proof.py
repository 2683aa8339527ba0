"""Proves that written weights are the same model: compares its outputs before and after."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bertjax.base.fields import NUM_CHARACTERS, WORD_LENGTH
from bertjax.heads.embedding import COUNTED, LATE
from bertjax.interop.pretrained import Pretrained
from bertjax.text.prompted import prompted

# The tolerance of outputs, by the dtype of their computation; relative to the greatest output if
# that is above 1. With weights in 8 bits, it depends on the model, and is only told.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "int8": float("inf")}

_ROWS, _CHOICES = 6, 3


def random_inputs(pretrained: Pretrained) -> dict[str, np.ndarray]:
    """Makes random texts of all lengths, one of them with its padding on the unusual side.

    Returns:
      The inputs of its encoder by name, int32 [6, S], or [2, 3, S] for multiple choice; words as
      characters are [6, S, W].
    """
    spec, rng = pretrained.spec, np.random.default_rng(0)
    length = min(61, spec.max_position_embeddings)
    ends = np.linspace(1, length, _ROWS).astype(int)[:, None]
    places = np.arange(length)
    mask = places < ends
    mask[1] = mask[1, ::-1]
    mask = mask[:, ::-1] if pretrained.family.hugging_face.pads_left else mask
    if pretrained.family.reads_characters:
        words = rng.integers(1, NUM_CHARACTERS, (*mask.shape, WORD_LENGTH)) * mask[..., None]
        return {"characters": words.astype(np.int32), "input_mask": mask.astype(np.int32)}
    segments = (places >= ends // 2) & mask
    # A model may recognize padding by its id, so no other token gets it.
    pad_id, size = pretrained.tokenizer.pad_id, pretrained.tokenizer.vocabulary_size
    ids = (pad_id + rng.integers(1, size, mask.shape)) % size
    inputs = {
        "input_ids": np.where(mask, ids, pad_id),
        "input_mask": mask,
        "token_type_ids": segments % max(1, spec.type_vocab_size),
    }
    choices = (_CHOICES,) if "C" in pretrained.architecture.axes else ()
    shape = (-1, *choices, length)
    names = pretrained.family.text_inputs
    return {name: inputs[name].reshape(shape).astype(np.int32) for name in names}


def outputs(module: nn.Module, params: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The outputs of a module for `random_inputs`, by name, without dropout."""
    infer = jax.jit(partial(module.apply, deterministic=True))
    return jax.tree.map(np.asarray, infer({"params": params}, dict(inputs)))


def vectors(pretrained: Pretrained, texts: Sequence[str], *, query: bool) -> list[np.ndarray]:
    """The vectors of texts by a model with an `embedding`.

    Args:
      query: whether the texts are queries, or passages.

    Returns:
      For each text float32 [D], or [S, D] of late interaction.
    """
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
    wanted: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> float:
    """The greatest absolute difference of two sets of outputs.

    Outputs at padding have no meaning and do not count. An output of a whole sequence does not
    count if its padding is on the unusual side, where [CLS] is otherwise.

    Args:
      wanted, found: outputs by name; those that only `found` has do not count.
      inputs: the inputs of both models.
      dtype: the dtype of the computation.

    Raises:
      RuntimeError: an output differs by more than the tolerance.
    """
    mask, worst = inputs["input_mask"] > 0, 0.0
    of_cls = max(mask[..., 0], mask[..., -1], key=np.sum)
    for name, output in wanted.items():
        real = mask if output.shape[: mask.ndim] == mask.shape else of_cls
        worst = max(worst, difference(name, output[real], found[name][real], dtype))
    return worst


def difference(name: str, wanted: np.ndarray, found: np.ndarray, dtype: str = "float32") -> float:
    """The greatest absolute difference of two arrays.

    Raises:
      RuntimeError: it is more than the tolerance, or the shapes differ.
    """
    if wanted.shape != found.shape:
        raise RuntimeError(f"the written model gives {name!r} {found.shape}, not {wanted.shape}")
    greatest = float(np.abs(wanted - found).max())
    if not greatest <= _TOLERANCE[dtype] * max(1.0, float(np.abs(wanted).max())):
        raise RuntimeError(f"the written model gives another {name!r}: {greatest:.1e} off")
    return greatest
