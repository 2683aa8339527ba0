"""Computes how much each token of a text attends to each, in every layer and head."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.models.attention.probabilities import ATTENTION
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder


class AttentionMaps(NamedTuple):
    """The attention of a model to a text of S pieces, with its special tokens."""

    tokens: list[str]
    maps: np.ndarray  # float32 [L, N, S, S]: how much a token attends to each (last axis)


def attention_maps(pretrained: Pretrained, text: str, most: int) -> AttentionMaps:
    """The attention of a model to a text of at most so many tokens.

    "[MASK]" and the like mean the special tokens of a vocabulary that has them.

    Raises:
      InputError: a text of more tokens; or a family whose layers do not record their attention.
    """
    pretrained.check_reads_pieces()
    tokenizer, spec = pretrained.tokenizer, pretrained.spec
    (ids,) = tokenizer.encode([text], special=True)
    sequence = tokenizer.template.sequence(ids)
    size, most = len(sequence.ids), min(most, spec.max_position_embeddings)
    pretrained.check_length(f"{text!r:.80}", size, most)
    batch = {
        "input_ids": np.array([sequence.ids], np.int32),
        "input_mask": np.ones((1, size), np.int32),
        "token_type_ids": np.array([sequence.token_types], np.int32),
    }
    found = _recorded(spec, pretrained.params[spec.encoder], batch)
    layers = [leaf[0] for leaf in jax.tree.leaves(_leaves_by_number(found))]
    if not layers:
        raise InputError(
            f"{pretrained.origin}: {pretrained.family.name} does not record its attention: leave "
            "out --text"
        )
    return AttentionMaps([tokenizer.readable[i] for i in sequence.ids], np.stack(layers))


@partial(jax.jit, static_argnums=0)
def _recorded(
    spec: EncoderSpec, params: Mapping[str, Any], batch: Mapping[str, jax.Array]
) -> dict[str, Any]:
    """Applies an encoder, and returns what its layers record, by their names."""
    encoder = make_encoder(spec)
    _, found = encoder.apply({"params": params}, batch, deterministic=True, mutable=[ATTENTION])
    return found.get(ATTENTION, {})


def _leaves_by_number(tree: Any) -> list[Any]:
    """The leaves of a tree whose keys end in numbers, in the order of these."""
    if not isinstance(tree, dict):
        return [tree]
    keys = sorted(tree, key=lambda key: int(key.rpartition("_")[2]) if key[-1].isdigit() else -1)
    return [leaf for key in keys for leaf in _leaves_by_number(tree[key])]
