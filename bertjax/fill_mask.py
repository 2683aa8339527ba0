"""What a trained model puts in the place of [MASK]."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertjax.batch import LEFT_TO_RIGHT
from bertjax.errors import InputError
from bertjax.model.heads import BertForPreTraining
from bertjax.run_folder import LoadedRun, load_run

_MASK = "[MASK]"


class Guess(NamedTuple):
    """A word piece, and how probable the model finds it."""

    token: str
    probability: float


def run(model: str, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """Prints, and returns, the best guesses: for each text, for each [MASK] in it, `top` guesses.

    Raises:
      InputError: no such run, or one that cannot; a text without [MASK], or one too long.
    """
    for text in texts:
        if _MASK not in text:
            raise InputError(f"no {_MASK} in {text!r}: put it where a word is to be guessed")
    loaded = load_run(model)
    if loaded.recipe.objective == LEFT_TO_RIGHT:
        raise InputError(f"{model}: trained left to right, it has never seen {_MASK}")
    guesses = [fill(loaded, text, top) for text in texts]
    for text, places in zip(texts, guesses, strict=True):
        print(text)
        for place in places:
            print("  " + "  ".join(f"{guess.token} {guess.probability:.1%}" for guess in place))
    return guesses


def fill(loaded: LoadedRun, text: str, top: int) -> list[list[Guess]]:
    """The `top` guesses for each [MASK] of one text, left to right."""
    tokenizer, spec = loaded.tokenizer, loaded.model.spec
    if not 1 <= top <= spec.vocab_size:
        raise InputError(f"--top={top}: must be from 1 to {spec.vocab_size}")
    (ids,) = tokenizer.encode([text], special=True)
    ids = [tokenizer.cls_id, *ids, tokenizer.sep_id]
    if len(ids) > spec.max_position_embeddings:
        raise InputError(
            f"the text has {len(ids)} tokens; the model takes {spec.max_position_embeddings}"
        )
    places = [i for i, token in enumerate(ids) if token == tokenizer.mask_id]
    length = min(-(-len(ids) // 64) * 64, spec.max_position_embeddings)  # few shapes to compile
    padded = np.full((1, length), tokenizer.pad_id, np.int32)
    padded[0, : len(ids)] = ids
    mask = (np.arange(length) < len(ids)).astype(np.int32)[None]
    logits = _logits(loaded.model, loaded.params, padded, mask, np.array([places], np.int32))
    probabilities = np.asarray(jax.nn.softmax(logits[0, :, : spec.vocab_size]))
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
    return [
        [Guess(tokenizer.tokens[i], float(row[i])) for i in order]
        for row, order in zip(probabilities, best, strict=True)
    ]


@partial(jax.jit, static_argnums=0)
def _logits(model: BertForPreTraining, params, ids, mask, places) -> jax.Array:
    segments = jax.numpy.zeros_like(ids)
    logits = model.apply({"params": params}, ids, mask, segments, places, deterministic=True)
    return logits["masked_lm"]
