"""Computes the outputs of transformers for an exported folder, if it is installed."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def outputs(
    folder: Path, class_name: str, batch: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The outputs of transformers' model of that folder, in float64, under our names.

    In float32 their rounding errors could be larger than ours.

    Args:
      class_name: transformers' name of its class.
      batch: the inputs of our encoder.
      names: those of our outputs that are wanted.

    Raises:
      RuntimeError: transformers misses a weight, or finds one that it does not use.
    """
    import torch
    import transformers

    model_class = getattr(transformers, class_name)
    attention = "sdpa" if model_class._supports_sdpa else "eager"
    model, loading = model_class.from_pretrained(
        folder, output_loading_info=True, attn_implementation=attention, dtype=torch.float64
    )
    trouble = {name: found for name, found in loading.items() if found}
    if trouble:
        raise RuntimeError(f"{folder}: transformers does not load it whole: {trouble}")
    inputs = {
        "input_ids": torch.tensor(batch["input_ids"]).long(),
        "attention_mask": torch.tensor(batch["input_mask"]),
    }
    if "token_type_ids" in batch:
        inputs["token_type_ids"] = torch.tensor(batch["token_type_ids"]).long()
    model = model.double().eval()  # XLNet's own arrays are loaded in float32 all the same
    with torch.inference_mode():
        result = model(**inputs)
    found = {name: next(key for key in OUTPUTS[name] if key in result) for name in names}
    return {name: result[key].numpy() for name, key in found.items()}
