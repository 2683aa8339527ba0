"""Computes the outputs of transformers for an exported folder, if it is installed."""

import importlib.util
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Our outputs -> their names in transformers' ModelOutput classes.
OUTPUTS = {
    "sequence": ("last_hidden_state",),
    "pooled": ("pooler_output",),
    "masked_lm": ("prediction_logits", "logits"),
    "next_sentence": ("seq_relationship_logits",),
    "replaced": ("logits",),
    "logits": ("logits",),
    "start": ("start_logits",),
    "end": ("end_logits",),
}


def knows(class_name: str) -> bool:
    """Whether transformers and PyTorch are installed, and have such a model."""
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        return False
    import transformers

    return hasattr(transformers, class_name)


def hide_progress() -> None:
    """No bars while transformers reads files, which are here."""
    import transformers

    transformers.utils.logging.disable_progress_bar()


def load(folder: Path, class_name: str, dtype: str, attention: str) -> Any:
    """A folder's model of transformers, for inference; `attention` is one of its implementations.

    Raises:
      RuntimeError: transformers misses a weight, or finds one that it does not use.
    """
    import torch
    import transformers

    hide_progress()
    model, loading = getattr(transformers, class_name).from_pretrained(
        folder,
        output_loading_info=True,
        attn_implementation=attention,
        dtype=getattr(torch, dtype),
    )
    trouble = {name: found for name, found in loading.items() if found}
    if trouble:
        raise RuntimeError(f"{folder}: transformers does not load it whole: {trouble}")
    return model.to(getattr(torch, dtype)).eval()  # arrays of XLNet's own are in float32


def inputs(batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The inputs of our encoder as tensors, under transformers' names."""
    import torch

    hf_inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["input_mask"]}
    if "token_type_ids" in batch:
        hf_inputs["token_type_ids"] = batch["token_type_ids"]
    return {name: torch.tensor(array).long() for name, array in hf_inputs.items()}


def output_name(name: str, found: Container[str]) -> str:
    """Transformers' name of one of our outputs, among those that were found."""
    return next(hf_name for hf_name in OUTPUTS[name] if hf_name in found)


def outputs(
    folder: Path, class_name: str, batch: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The outputs of transformers' model of that folder, in float64, under our names.

    In float32 their rounding errors could be larger than ours.
    """
    import torch
    import transformers

    attention = "sdpa" if getattr(transformers, class_name)._supports_sdpa else "eager"
    model = load(folder, class_name, "float64", attention)
    with torch.inference_mode():
        result = model(**inputs(batch))
    return {name: result[output_name(name, result)].numpy() for name in names}
