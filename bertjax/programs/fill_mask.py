"""What a trained model puts in the place of [MASK]."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.encoders import kinds
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.interop.pretrained import Pretrained
from bertjax.runs.open_model import open_model
from bertjax.text.tokenizer import Tokenizer

_MASK = "[MASK]"


class Guess(NamedTuple):
    """A word piece, and how probable the model finds it."""

    token: str
    probability: float


def run(model: str, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """Prints, and returns, the best guesses: for each text, for each [MASK] in it, `top` guesses.

    Raises:
      InputError: no such model, or one that cannot; a text without [MASK], or one too long.
    """
    for text in texts:
        if _MASK not in text:
            raise InputError(f"no {_MASK} in {text!r}: put it where a word is to be guessed")
    pretrained = open_model(model)
    if pretrained.spec.causal:
        raise InputError(f"{model}: trained left to right, it has never seen {_MASK}")
    guesses = fill(pretrained, texts, top)
    for text, places in zip(texts, guesses, strict=True):
        print(text)
        for place in places:
            print("  " + "  ".join(f"{guess.token} {guess.probability:.1%}" for guess in place))
    return guesses


def fill(pretrained: Pretrained, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """The `top` guesses for each [MASK] of each text, left to right."""
    tokenizer, spec = pretrained.tokenizer, pretrained.spec
    if not 1 <= top <= tokenizer.vocabulary_size:
        raise InputError(f"--top={top}: must be from 1 to {tokenizer.vocabulary_size}")
    rows = [
        [tokenizer.cls_id, *ids, tokenizer.sep_id]
        for ids in tokenizer.encode(list(texts), special=True)
    ]
    for ids in rows:
        if len(ids) > spec.max_position_embeddings:
            raise InputError(
                f"the text has {len(ids)} tokens; the model takes {spec.max_position_embeddings}"
            )
    model, params = pretrained.model(kinds.MASKED_LM), jax.device_put(pretrained.params)
    return [_fill_one(model, params, tokenizer, ids, top) for ids in rows]


def _fill_one(model, params, tokenizer: Tokenizer, ids: list[int], top: int) -> list[list[Guess]]:
    places = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
    # Few shapes to compile.
    length = min(-(-len(ids) // 64) * 64, model.spec.max_position_embeddings)
    padded = np.full((1, length), tokenizer.pad_id, np.int32)
    padded[0, : len(ids)] = ids
    mask = (np.arange(length) < len(ids)).astype(np.int32)[None]
    logits = _logits(model, params, padded, mask, np.array([places], np.int32))
    # A model may have more rows than the vocabulary has pieces.
    probabilities = np.asarray(jax.nn.softmax(logits[0, :, : tokenizer.vocabulary_size]))
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
    return [
        [Guess(tokenizer.tokens[i], float(row[i])) for i in order]
        for row, order in zip(probabilities, best, strict=True)
    ]


@partial(jax.jit, static_argnums=0)
def _logits(model: PreTrainingModel, params, ids, mask, places) -> jax.Array:
    segments = jax.numpy.zeros_like(ids)
    logits = model.apply({"params": params}, ids, mask, segments, places, deterministic=True)
    return logits["masked_lm"]
