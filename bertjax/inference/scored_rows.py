"""The rows that a model computes for texts, and their targets: the tokens that are scored.

A batch has the inputs of a model, and two more arrays: "target_ids", int32 [B, P], and
"target_weights", float32 [B, P], 0 where there is no target. Masked rows also have "order".
"""

from typing import Protocol

import numpy as np

from bertjax.data.examples.masking import inside_words
from bertjax.inference.rows import Rows
from bertjax.tasks.encoded import Encoded
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.sharding.placement import HostBatch

TOKEN = "token"
MASKINGS = (TOKEN, "word")


class SentenceRows(Rows, Protocol):
    """R rows for N sentences; `sentence` is the number of each row's, int32 [R]."""

    sentence: np.ndarray


class MaskedRows:
    """A row for each token of each sentence, in which this token is masked.

    The probabilities of a sentence's tokens are its pseudo-likelihood (Salazar et al., arXiv
    1910.14659). Special tokens around a sentence are not masked. With the masking "word", the later
    tokens of its word are masked with a token, so that a word's end does not give away its
    beginning (Kauf and Ivanova, arXiv 2305.10588).

    Raises:
      InputError: the vocabulary has no [MASK].
    """

    def __init__(self, encoded: Encoded, tokenizer: Tokenizer, masking: str):
        self._encoded, self._tokenizer = encoded, tokenizer
        self._mask_id = tokenizer.mask_id
        of_token, scored = _sentences_and_scored(encoded, tokenizer)
        first = np.flatnonzero(scored)
        last = first if masking == TOKEN else _last_of_words(encoded.ids, tokenizer)[first]
        self.sentence = of_token[first]
        self.lengths = encoded.lengths[self.sentence]
        begin = encoded.starts[self.sentence]
        self._first, self._last = (first - begin).astype(np.int32), (last - begin).astype(np.int32)

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        """See `Rows`; P is 1."""
        first, last = (places[numbers][:, None] for places in (self._first, self._last))
        batch = self._encoded.batch(
            {}, self.sentence[numbers], rows, length, self._tokenizer.pad_id
        )
        ids, column = batch["input_ids"][: len(numbers)], np.arange(length)
        target = np.take_along_axis(ids, first, axis=1)
        masked = (column >= first) & (column <= last)
        ids[masked] = self._mask_id
        padding = [(0, rows - len(numbers)), (0, 0)]
        return batch | {
            "order": np.pad(masked.astype(np.int32), padding),
            "masked_lm_positions": np.pad(first, padding),
            "target_ids": np.pad(target, padding),
            "target_weights": np.ones((rows, 1), np.float32),
        }


class WholeRows:
    """A row for each sentence, for models in which a token sees only those before it.

    Special tokens around a sentence are no targets, but those before it are seen. Without them, the
    first token has nothing before it, and is no target.
    """

    def __init__(self, encoded: Encoded, tokenizer: Tokenizer):
        self._encoded, self._tokenizer = encoded, tokenizer
        self.lengths, self.sentence = encoded.lengths, np.arange(len(encoded), dtype=np.int32)

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        """See `Rows`; P is S, and the target of a position is the next token."""
        batch = self._encoded.batch({}, numbers, rows, length, self._tokenizer.pad_id)
        template, place = self._tokenizer.template, np.arange(1, length)
        end = batch["input_mask"].sum(1, keepdims=True) - len(template.after)
        scored = (place >= len(template.before)) & (place < end)
        padding = [(0, 0), (0, 1)]
        return batch | {
            "target_ids": np.pad(batch["input_ids"][:, 1:], padding),
            "target_weights": np.pad(scored.astype(np.float32), padding),
        }


class Windows:
    """Windows of S tokens of one long text, int [N], which move on by `stride` tokens.

    Those that a window shows first are its targets. The text's first token is none.
    """

    def __init__(self, ids: np.ndarray, length: int, stride: int):
        count = 1 + -(-max(0, len(ids) - length) // stride)
        self._ids, self._begin = ids, np.arange(count) * stride
        self._end = np.minimum(self._begin + length, len(ids))
        self._first = np.append(1, self._end[:-1])  # that each window predicts
        self.lengths = np.full(count, length)

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        """See `Rows`; P is S, and the target of a position is the next token."""
        ids, count = self._ids, len(numbers)
        first, end = (places[numbers, None] for places in (self._first, self._end))
        place = np.zeros((rows, length), np.int64)
        scored = np.zeros((rows, length), np.float32)
        mask = np.zeros((rows, length), np.int32)
        of_text = self._begin[numbers, None] + np.arange(length)
        place[:count] = np.minimum(of_text, len(ids) - 1)
        mask[:count] = of_text < end
        scored[:count] = (of_text + 1 >= first) & (of_text + 1 < end)
        return {
            "input_ids": ids[place],
            "input_mask": mask,
            "token_type_ids": np.zeros_like(mask),
            "target_ids": ids[np.minimum(place + 1, len(ids) - 1)],
            "target_weights": scored,
        }


def _sentences_and_scored(encoded: Encoded, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The number of each token's sentence, int32 [T], and whether it is scored, bool [T]."""
    lengths = np.diff(encoded.starts)
    sentence = np.repeat(np.arange(len(encoded), dtype=np.int32), lengths)
    place = np.arange(len(encoded.ids)) - encoded.starts[sentence]
    before, after = len(tokenizer.template.before), len(tokenizer.template.after)
    return sentence, (place >= before) & (place < lengths[sentence] - after)


def _last_of_words(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The index of the last token of each token's word, int64 [T]."""
    ordinary = tokenizer.ordinary.take(ids)[None]
    inside = inside_words(ids[None], ordinary, tokenizer.continues_word, tokenizer.word_links)[0]
    begins = np.flatnonzero(~inside)
    return np.append(begins[1:], len(ids))[np.cumsum(~inside) - 1] - 1
