"""Proves that written weights are the same model: compares its outputs before and after."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bertjax.interop.pretrained import Pretrained

# The tolerance of outputs, by the dtype of their computation; relative to the greatest output if
# that is above 1.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}

_ROWS, _CHOICES = 6, 3


def random_inputs(pretrained: Pretrained) -> dict[str, np.ndarray]:
    """Makes random texts of all lengths, one of them with its padding in front.

    Returns:
      The inputs of its encoder by name, int32 [6, S], or [2, 3, S] for multiple choice.
    """
    spec, rng = pretrained.spec, np.random.default_rng(0)
    length = min(61, spec.max_position_embeddings)
    ends = np.linspace(1, length, _ROWS).astype(int)[:, None]
    places = np.arange(length)
    mask = places < ends
    mask[1] = mask[1, ::-1]
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


def greatest_difference(
    wanted: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> float:
    """The greatest absolute difference of two sets of outputs.

    Outputs at padding have no meaning and do not count. An output of a whole sequence does not
    count if the first position, which is [CLS] otherwise, is padding.

    Args:
      wanted, found: outputs by name; those that only `found` has do not count.
      inputs: the inputs of both models.
      dtype: the dtype of the computation.

    Raises:
      RuntimeError: an output differs by more than the tolerance.
    """
    mask, worst = inputs["input_mask"] > 0, 0.0
    for name, output in wanted.items():
        real = mask if output.shape[: mask.ndim] == mask.shape else mask[..., 0]
        difference = float(np.abs(output - found[name])[real].max())
        if not difference <= _TOLERANCE[dtype] * max(1.0, float(np.abs(output[real]).max())):
            raise RuntimeError(f"the written model gives another {name!r}: {difference:.1e} off")
        worst = max(worst, difference)
    return worst
