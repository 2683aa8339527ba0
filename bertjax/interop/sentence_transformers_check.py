"""Computes the vectors of sentence-transformers for an exported folder, if it is installed."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.interop.sentence_transformers import CLASSES
from bertjax.interop.transformers_check import hide_progress
from bertjax.models.heads.embedding import DENSE, LATE, SPARSE


def installed() -> bool:
    """Whether sentence-transformers is installed."""
    return importlib.util.find_spec("sentence_transformers") is not None


def vectors(
    folder: Path, kind: str, texts: Sequence[str], *, query: bool, prompt: str | None = None
) -> list[np.ndarray]:
    """The vectors of sentence-transformers' model of that folder: float64 [D], or [S, D], a text.

    `kind` is one of `bertjax.models.heads.embedding.KINDS`; `prompt` stands before the texts, and
    None is what the folder says. Vectors that the folder cuts have length 1.
    """
    import sentence_transformers

    hide_progress()
    model = getattr(sentence_transformers, CLASSES[kind])(str(folder), device="cpu").double()
    encode = model.encode_query if query else model.encode_document
    more: dict[str, Any] = {"prompt": prompt}
    if kind != LATE:
        more["convert_to_tensor"] = True
    if kind == DENSE and model.truncate_dim:
        more["normalize_embeddings"] = True
    if kind == SPARSE:
        more["convert_to_sparse_tensor"] = False
    return [vector.numpy() for vector in encode(list(texts), show_progress_bar=False, **more)]
