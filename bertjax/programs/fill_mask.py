"""Prints the words that a trained model puts in the place of [MASK]."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import TEXT
from bertjax.inference.batcher import Batcher
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import kinds
from bertjax.models.heads.pretraining import PreTrainingModel, piece_logits
from bertjax.runs.source import open_model
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Arrays, Params
from bertjax.training.sharding.placement import data_parallel

_MASK = "[MASK]"  # in a text, for every model
_STEP = 64  # batches are padded to a multiple of this, so few shapes are compiled


class Guess(NamedTuple):
    """A piece, as `Tokenizer.readable` has it, and its probability."""

    token: str
    probability: float


def run(model: str, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """Prints, and returns, the best guesses: for each text, for each [MASK] in it, `top` guesses.

    Raises:
      InputError: no such model, or one that cannot fill [MASK]; a text without it, or too long.
    """
    _check(texts)
    pretrained = open_model(model)
    guesses = fill(pretrained, texts, top)
    for text, places in zip(texts, guesses, strict=True):
        print(text)
        for place in places:
            print("  " + "  ".join(f"{guess.token} {guess.probability:.1%}" for guess in place))
    return guesses


def fill(pretrained: Pretrained, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """The `top` guesses for each [MASK] of each text, left to right; raises as `run`."""
    _check(texts)
    tokenizer, spec = pretrained.tokenizer, pretrained.spec
    if spec.causal:
        raise InputError(f"{pretrained.origin}: trained left to right, it has never seen {_MASK}")
    model, params = pretrained.model(kinds.MASKED_LM), pretrained.params
    if not 1 <= top <= tokenizer.vocabulary_size:
        raise InputError(f"--top={top}: must be from 1 to {tokenizer.vocabulary_size}")
    texts = [text.replace(_MASK, tokenizer.tokens[tokenizer.mask_id]) for text in texts]
    rows = [tokenizer.template.sequence(ids).ids for ids in tokenizer.encode(texts, special=True)]
    for ids in rows:
        if len(ids) > spec.max_position_embeddings:
            raise InputError(
                f"the text has {len(ids)} tokens; the model takes {spec.max_position_embeddings}"
            )
    placement = data_parallel()
    params = jax.device_put(params, placement.replicated)
    lengths = np.array([len(ids) for ids in rows])
    masks = [[i for i, token in enumerate(ids) if token == tokenizer.mask_id] for ids in rows]
    most = max(map(len, masks), default=0)

    def make(numbers: np.ndarray, count: int, length: int) -> dict[str, np.ndarray]:
        batch = {name: np.zeros((count, length), np.int32) for name in TEXT}
        batch["input_ids"][:] = tokenizer.pad_id
        batch["masked_lm_positions"] = np.zeros((count, most), np.int32)
        batch["order"] = np.zeros((count, length), np.int32)
        for row, number in enumerate(numbers):
            batch["input_ids"][row, : lengths[number]] = rows[number]
            batch["input_mask"][row, : lengths[number]] = 1
            batch["masked_lm_positions"][row, : len(masks[number])] = masks[number]
            batch["order"][row, masks[number]] = 1
        return batch

    longest = spec.max_position_embeddings
    batcher = Batcher(placement, batch_tokens=None)
    batches = batcher.run(
        lengths,
        (*range(_STEP, longest, _STEP), longest),
        rows=lambda length: batcher.rows(length, len(rows)),
        make=make,
        compute=partial(_probabilities, model, tokenizer.vocabulary_size, params),
    )
    guesses: list[list[list[Guess]]] = [[] for _ in rows]
    for numbers, probabilities in batches:
        for number, places in zip(numbers, probabilities, strict=False):
            guesses[number] = [
                _best(place, tokenizer, top) for place in places[: len(masks[number])]
            ]
    return guesses


def _check(texts: Sequence[str]) -> None:
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
