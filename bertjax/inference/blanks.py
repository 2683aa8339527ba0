"""The words that a trained model puts in the place of [MASK]."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertjax.base.checks import check_range
from bertjax.base.errors import InputError
from bertjax.inference.batcher import Batcher, up_to
from bertjax.inference.rows import Column, Columns
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.heads.pretraining import PreTrainingModel, piece_logits
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Arrays, Params
from bertjax.training.sharding.placement import data_parallel

_MASK = "[MASK]"  # in a text, for every model
_STEP = 64  # batches are padded to a multiple of this, so few shapes are compiled


class Guess(NamedTuple):
    """A piece, as `Tokenizer.readable` has it, and its probability."""

    token: str
    probability: float


def fill(pretrained: Pretrained, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """The best guesses: for each text, for each [MASK] in it from left to right, `top` guesses.

    Raises:
      InputError: a model that cannot fill [MASK]; a text without it, or too long.
    """
    check_blanks(texts)
    tokenizer, spec = pretrained.tokenizer, pretrained.spec
    if spec.causal:
        raise InputError(f"{pretrained.origin}: trained left to right, it has never seen {_MASK}")
    model, longest = pretrained.model(head_types.MASKED_LM), spec.max_position_embeddings
    check_range("--top", top, 1, tokenizer.vocabulary_size)
    texts = [text.replace(_MASK, tokenizer.tokens[tokenizer.mask_id]) for text in texts]
    encoded = tokenizer.encode(texts, special=True)
    ids = [np.array(tokenizer.template.sequence(each).ids) for each in encoded]
    for text, each in zip(texts, ids, strict=True):
        pretrained.check_length(f"{text!r:.80}", len(each))
    masked = [each == tokenizer.mask_id for each in ids]
    places = [np.flatnonzero(each) for each in masked]
    rows = Columns(
        {
            "input_ids": Column(ids, tokenizer.pad_id),
            "token_type_ids": Column([()] * len(ids)),
            "masked_lm_positions": Column(places, width=max(map(len, places), default=0)),
            "order": Column(masked),
        }
    )
    placement = data_parallel()
    params = jax.device_put(pretrained.params, placement.replicated)
    compute = partial(_probabilities, model, tokenizer.vocabulary_size, params)
    guesses: list[list[list[Guess]]] = [[] for _ in texts]
    buckets = up_to(longest, range(_STEP, longest, _STEP))
    for numbers, probabilities in Batcher(placement).predict(compute, rows, buckets):
        for number, found in zip(numbers, probabilities, strict=True):
            text_logits = found[: len(places[number])]
            guesses[number] = [_best(place, tokenizer, top) for place in text_logits]
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
