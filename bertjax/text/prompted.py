"""Texts with a prompt before them, as models of vectors read them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.text.pairs import joined
from bertjax.text.tokenizer import Tokenizer


class PromptedText(NamedTuple):
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
    skipped = 0
    if prompt and not count_prompt:
        skipped = len(tokenizer.template.before) + len(tokenizer.encode([prompt])[0])
    result = []
    for ids in tokenizer.encode([prompt + text for text in texts]):
        sequence = joined(tokenizer, ids, None, max_length)
        counted = np.arange(len(sequence.ids)) >= skipped
        result.append(
            PromptedText(
                np.array(sequence.ids, np.int32),
                np.array(sequence.token_types, np.int32),
                counted.astype(np.int32),
            )
        )
    return result
