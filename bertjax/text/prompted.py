"""Texts after a prompt as token ids, and which of them the vectors are made of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.text.tokenizer import Tokenizer


class PromptedText(NamedTuple):
    """A text in the model's form, int32 [S] each; `counted` is 1 on what makes its vectors."""

    ids: np.ndarray
    token_types: np.ndarray
    counted: np.ndarray


def prompted(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    *,
    prompt: str = "",
    count_prompt: bool = True,
    max_length: int,
) -> list[PromptedText]:
    """The tokens of each text, with the prompt before it.

    The prompt and the text are one string. If the prompt does not count, neither do as many tokens
    at the beginning as the prompt alone has, with the special tokens before it. A text loses the
    tokens after `max_length`, special tokens counted.

    Raises:
      InputError: no room for the special tokens, or for a text after the prompt; half a surrogate
        pair in a text.
    """
    template = tokenizer.template
    room = max_length - template.specials(pair=False)
    if room < 0:
        raise InputError(f"at most {max_length} tokens: no room for the special tokens of a text")
    skipped = 0
    if prompt:
        (ids,) = tokenizer.encode([prompt])
        if len(ids) >= room:
            raise InputError(
                f"the prompt {prompt!r:.80} has {len(ids)} tokens, where {room} are free of the at "
                f"most {max_length} of a text: all texts would be alike: take a shorter prompt, or "
                "a greater length (config.task.query_length, passage_length)"
            )
        alone = template.sequence(ids).ids  # as sentence-transformers counts them
        at_end = any(each in tokenizer.special_ids for each in alone[-1:])
        skipped = 0 if count_prompt else len(alone) - at_end
    encoded = []
    for ids in tokenizer.encode([prompt + text for text in texts]):
        tokens, types = (np.array(each, np.int32) for each in template.sequence(ids[:room]))
        counted = (np.arange(len(tokens)) >= skipped).astype(np.int32)
        encoded.append(PromptedText(tokens, types, counted))
    return encoded
