"""The words that a trained model puts in the place of [MASK]."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property, partial
from typing import NamedTuple

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.inference.batcher import Batcher, padded, up_to
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import kinds
from bertjax.models.heads.pretraining import PreTrainingModel, piece_logits
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Arrays, Params
from bertjax.training.sharding.placement import HostBatch, data_parallel

_MASK = "[MASK]"  # in a text, for every model
_STEP = 64  # batches are padded to a multiple of this, so few shapes are compiled


class Guess(NamedTuple):
    """A piece, as `Tokenizer.readable` has it, and its probability."""

    token: str
    probability: float


@dataclasses.dataclass(frozen=True)
class _Blanks:
    """Rows of texts with [MASK] in them."""

    ids: list[np.ndarray]
    pad_id: int
    mask_id: int

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.ids])

    @cached_property
    def places(self) -> list[np.ndarray]:
        """Where the masks of each text are."""
        return [np.flatnonzero(ids == self.mask_id) for ids in self.ids]

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        ids, places = ([each[n] for n in numbers] for each in (self.ids, self.places))
        tokens = padded(ids, rows, length, self.pad_id)
        return {
            "input_ids": tokens,
            "input_mask": padded([np.ones_like(each) for each in ids], rows, length),
            "token_type_ids": np.zeros_like(tokens),
            "masked_lm_positions": padded(places, rows, max(map(len, self.places))),
            "order": (tokens == self.mask_id).astype(np.int32),
        }


def fill(pretrained: Pretrained, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """The best guesses: for each text, for each [MASK] in it from left to right, `top` guesses.

    Raises:
      InputError: a model that cannot fill [MASK]; a text without it, or too long.
    """
    check_blanks(texts)
    tokenizer, spec = pretrained.tokenizer, pretrained.spec
    if spec.causal:
        raise InputError(f"{pretrained.origin}: trained left to right, it has never seen {_MASK}")
    model, longest = pretrained.model(kinds.MASKED_LM), spec.max_position_embeddings
    if not 1 <= top <= tokenizer.vocabulary_size:
        raise InputError(f"--top={top}: must be from 1 to {tokenizer.vocabulary_size}")
    texts = [text.replace(_MASK, tokenizer.tokens[tokenizer.mask_id]) for text in texts]
    encoded = tokenizer.encode(texts, special=True)
    rows = _Blanks(
        [np.array(tokenizer.template.sequence(ids).ids) for ids in encoded],
        *(tokenizer.pad_id, tokenizer.mask_id),
    )
    for length in rows.lengths:
        if length > longest:
            raise InputError(f"the text has {length} tokens; the model takes {longest}")
    placement = data_parallel()
    params = jax.device_put(pretrained.params, placement.replicated)
    compute = partial(_probabilities, model, tokenizer.vocabulary_size, params)
    guesses: list[list[list[Guess]]] = [[] for _ in texts]
    buckets = up_to(longest, range(_STEP, longest, _STEP))
    for numbers, probabilities in Batcher(placement).predict(compute, rows, buckets):
        for number, found in zip(numbers, probabilities, strict=True):
            count = len(rows.places[number])
            guesses[number] = [_best(place, tokenizer, top) for place in found[:count]]
    return guesses


def check_blanks(texts: Sequence[str]) -> None:
    """Raises InputError for a text without [MASK]."""
    for text in texts:
        if _MASK not in text:
            raise InputError(f"no {_MASK} in {text!r}: put it where a word is to be guessed")


def _best(probabilities: np.ndarray, tokenizer: Tokenizer, top: int) -> list[Guess]:
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [Guess(tokenizer.readable[i], float(probabilities[i])) for i in order]


@partial(jax.jit, static_argnums=(0, 1))
def _probabilities(
    model: PreTrainingModel, vocabulary_size: int, params: Params, batch: Arrays
) -> jax.Array:
    """The probability of each piece at each position, float32 [B, P, V]."""
    return jax.nn.softmax(piece_logits(model, vocabulary_size, params, batch))
