"""Converts parameters between canonical storage and the storage that a spec needs.

Canonical storage has a tree for each layer and a row for each piece of the vocabulary; a spec may
need its layers stacked (`scan_layers`) and its vocabulary padded (`vocab_multiple`).
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.models.encoders.contract import EncoderSpec

_OF_DECODER = ("kernel", "bias")


def tables_of_pieces(spec: EncoderSpec) -> tuple[str, ...]:
    """Paths of the parameters that may have a row for each piece of the vocabulary."""
    of_heads = (f"{head}/{name}" for head in ("masked_lm", "next_word") for name in _OF_DECODER)
    return (f"{spec.encoder}/embeddings/token", *of_heads)


def to_canonical(params: dict[str, Any], spec: EncoderSpec) -> dict[str, Any]:
    """The parameters of a model with `spec`, as host arrays in canonical storage."""
    params = jax.tree.map(np.asarray, params)
    params = _with_rows(params, spec, lambda rows: rows[: spec.vocab_size])
    if spec.scan_layers:
        encoder = dict(params[spec.encoder]["encoder"])
        stacked = encoder.pop("layers")
        layers = {
            f"layer_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], stacked)
            for i in range(spec.num_hidden_layers)
        }
        params = params | {spec.encoder: params[spec.encoder] | {"encoder": encoder | layers}}
    return params


def from_canonical(params: dict[str, Any], spec: EncoderSpec) -> dict[str, Any]:
    """Host arrays in canonical storage, as a model with `spec` stores them; padding is zeros."""
    padding = spec.padded_vocab_size - spec.vocab_size
    params = _with_rows(
        params, spec, lambda rows: np.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1))
    )
    if spec.scan_layers:
        encoder = dict(params[spec.encoder]["encoder"])
        layers = [encoder.pop(f"layer_{i}") for i in range(spec.num_hidden_layers)]
        stacked = {"layers": jax.tree.map(lambda *leaves: np.stack(leaves), *layers)}
        params = params | {spec.encoder: params[spec.encoder] | {"encoder": encoder | stacked}}
    return params


def _with_rows(
    params: dict[str, Any], spec: EncoderSpec, change: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any]:
    """The parameters, with `change` applied to those that have a row for each piece."""
    flat = flatten_dict(params)
    for path in tables_of_pieces(spec):
        key = tuple(path.split("/"))
        if key in flat:
            flat[key] = change(flat[key])
    return unflatten_dict(flat)
