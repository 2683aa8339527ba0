"""Texts with a prompt before them, as models of vectors read them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.text.pairs import joined
from bertjax.text.tokenizer import Tokenizer


class PromptedText(NamedTuple):
    """A text in the model's form; all arrays are int32 [S].

    Attributes:
      ids: with special tokens.
      token_types: 0 in the first text.
      counted: 1 on the tokens of which vectors are made.
    """

    ids: np.ndarray
    token_types: np.ndarray
    counted: np.ndarray


def encode_prompted(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    prompt: str,
    *,
    count_prompt: bool,
    max_length: int,
) -> list[PromptedText]:
    """Encodes texts with the prompt before each.

    Args:
      prompt: it and a text are encoded as one text.
      count_prompt: whether its tokens count. If not, the special tokens before it do not either,
        as with sentence-transformers' `include_prompt=False`.
      max_length: the most tokens, including special ones; the end of a longer text is cut off.
    """
    skipped = 0
    if prompt and not count_prompt:
        skipped = len(tokenizer.template.before) + len(tokenizer.encode([prompt])[0])
    found = []
    for ids in tokenizer.encode([prompt + text for text in texts]):
        sequence = joined(tokenizer, ids, None, max_length)
        counted = np.arange(len(sequence.ids)) >= skipped
        found.append(PromptedText(*(np.array(each, np.int32) for each in (*sequence, counted))))
    return found
