"""Proves that written weights are the same model: it computes the outputs before and after."""

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
      int32 input_ids, input_mask and token_type_ids, [6, S], or [2, 3, S] for multiple choice.
    """
    spec, rng = pretrained.spec, np.random.default_rng(0)
    length = min(61, spec.max_position_embeddings)
    ends = np.linspace(1, length, _ROWS).astype(int)[:, None]
    places = np.arange(length)
    mask = places < ends
    mask[1] = mask[1, ::-1]
    segments = (places >= ends // 2) & mask
    inputs = {
        "input_ids": rng.integers(0, pretrained.tokenizer.vocabulary_size, mask.shape),
        "input_mask": mask,
        "token_type_ids": segments % max(1, spec.type_vocab_size),
    }
    choices = (_CHOICES,) if "C" in pretrained.architecture.axes else ()
    shape = (-1, *choices, length)
    return {name: array.reshape(shape).astype(np.int32) for name, array in inputs.items()}


def outputs(module: nn.Module, params: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The outputs of a module for `random_inputs`, by name, without dropout."""
    infer = jax.jit(partial(module.apply, deterministic=True))
    return jax.tree.map(np.asarray, infer({"params": params}, *inputs.values()))


def greatest_difference(
    wanted: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> float:
    """The greatest absolute difference of two sets of outputs.

    Outputs at padding do not count, because they have no meaning; and outputs of a whole sequence
    do not where padding is in the place of [CLS].

    Args:
      wanted, found: outputs by name; of `found`, other names do not count.
      inputs: what they are the outputs for.
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
