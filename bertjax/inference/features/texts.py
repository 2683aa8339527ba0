"""Encodes texts as token ids, and assigns each token to a vector of the result."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.base.checks import check_file
from bertjax.base.errors import InputError
from bertjax.data.corpus.line_files import lines
from bertjax.data.corpus.source import Skip
from bertjax.data.corpus.sources import open_source
from bertjax.text.pairs import SEPARATOR, kept_lengths
from bertjax.text.tokenizer import Tokenizer

TOKENS, WORDS, FIRST_PIECES, CLS, LAST, MEAN, MAX = KINDS = (
    *("tokens", "words", "first_pieces"),
    *("cls", "last", "mean", "max"),
)
POOLED = (CLS, LAST, MEAN, MAX)  # these kinds give one vector for each text

# The characters that separate words for BERT's tokenizer. It removes the other characters that
# str.split treats as white space, so the texts before and after them are joined.
_SPACES = re.compile("[ \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


# ------------------------------------------------------------------------------- the file


def read_texts(source: str) -> Iterator[str]:
    """The texts of a file, in order.

    Args:
      source: a text file (also .gz .xz .bz2 .zst), in which every line is a text, also an empty
        one; or jsonl:GLOB#field or parquet:GLOB#column, as for `bertjax.data.corpus.sources`.

    Raises:
      InputError: the file is missing; or, while it is read, it is damaged or not UTF-8.
    """
    if unit_of(source) == "record":
        return _read_records(source)
    check_file(source, "input")
    return decoded((line for _, line in lines(source, 0)), source)


def _read_records(source: str) -> Iterator[str]:
    records = open_source(source, installed_docs=Path())
    for path, number, text in records.all_documents(Skip.UNDECODABLE):
        if text is None:
            raise InputError(f"{path} record {number}: not UTF-8: convert it")
        yield "\n".join(text)


def unit_of(source: str) -> str:
    """The unit that holds one text in a source: "line" or "record"."""
    return "record" if source.startswith(("jsonl:", "parquet:")) else "line"


def decoded(lines: Iterable[bytes], origin: str) -> Iterator[str]:
    """Lines of UTF-8, without their ends and a byte-order mark; raises InputError for others."""
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{origin} line {number}: not UTF-8 at its byte {error.start} ({error.reason}): "
                "convert it"
            ) from error
        yield text.rstrip("\r\n")


# ------------------------------------------------------------------------------- the ids


class EncodedText(NamedTuple):
    """A text in the model's form.

    Attributes:
      ids: int32 [S], with special tokens; or [S, W], the characters of words.
      token_types: int32 [S].
      groups: int32 [S], the number of the vector that each token contributes to, from 0; -1 for
        none.
      places: int64 [G], the row of the text's result that each of these vectors becomes. The other
        rows are zero (a word without any piece has such a row).
      tokens: the token or word of each row, as text; None if a text has one vector.
      length: the value of S if the text were not cut.
    """

    ids: np.ndarray
    token_types: np.ndarray
    groups: np.ndarray
    places: np.ndarray
    tokens: list[str] | None
    length: int

    @property
    def vectors(self) -> int:
        """The number of rows that the result has for this text."""
        return 1 if self.tokens is None else len(self.tokens)


class _Half(NamedTuple):
    """The pieces of one text; `word_of` is the number of each piece's word."""

    ids: list[int]
    word_of: np.ndarray
    words: list[str]


class TextEncoder:
    """Encodes texts for one kind of result, one of `KINDS`.

    The end of a text with more tokens than `max_length` is cut off; in a pair, the end of the
    longer text is cut first (google-research/bert, `_truncate_seq_pair`).
    """

    def __init__(self, tokenizer: Tokenizer, features: str, max_length: int):
        self._tokenizer, self._features, self._max_length = tokenizer, features, max_length

    def encode(
        self, texts: Iterable[str], at_once: int = 1000, *, pairs: bool = True
    ) -> Iterator[EncodedText]:
        """Encodes texts, `at_once` of them together; with `pairs`, "A ||| B" is a pair of texts."""
        texts = iter(texts)
        while some := list(islice(texts, at_once)):
            split_texts = (text.rpartition(SEPARATOR) if pairs else ("", "", text) for text in some)
            sides = [[a, b] if bar else [b] for a, bar, b in split_texts]
            halves = self._halves(list(chain.from_iterable(sides)))
            for one in sides:
                yield self._join([next(halves) for _ in one])

    def _halves(self, texts: list[str]) -> Iterator[_Half]:
        if self._features not in (WORDS, FIRST_PIECES):
            for ids in self._tokenizer.encode(texts):
                yield _Half(ids, np.zeros(len(ids), np.int64), [])
            return
        words_of = [[word for word in _SPACES.split(text) if word] for text in texts]
        for words, pieces in zip(words_of, self._tokenizer.encode_words(words_of), strict=True):
            word_of = np.repeat(np.arange(len(words)), [len(ids) for ids in pieces])
            yield _Half(list(chain.from_iterable(pieces)), word_of, words)

    def _join(self, halves: list[_Half]) -> EncodedText:
        template = self._tokenizer.template
        specials = template.specials(pair=len(halves) > 1)
        lengths = [len(half.ids) for half in halves]
        kept = kept_lengths(lengths, self._max_length - specials)
        sequence = template.sequence(*(h.ids[:n] for h, n in zip(halves, kept, strict=True)))
        word_of = np.full(len(sequence.ids), -1)
        words: list[str] = []
        for half, count, begin in zip(halves, kept, template.begins(kept[0]), strict=False):
            word_of[begin : begin + count] = half.word_of[:count] + len(words)
            if count < len(half.ids):
                words += half.words[: half.word_of[count - 1] + 1] if count else []
            else:
                words += half.words
        ids, types = (np.array(each, np.int32) for each in sequence)
        groups, places, tokens = self._groups(ids, word_of, words)
        return EncodedText(ids, types, groups, places, tokens, sum(lengths) + specials)

    def _groups(
        self, ids: np.ndarray, word_of: np.ndarray, words: list[str]
    ) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
        """Returns the fields groups, places and tokens of `EncodedText`."""
        size = len(ids)
        if self._features in POOLED:
            groups = np.zeros(size, np.int32)
            if self._features == CLS:
                groups[ids != self._tokenizer.cls_id] = -1
            if self._features == LAST:
                groups[:-1] = -1
            return groups, np.zeros(1, np.int64), None
        if self._features == TOKENS:
            names = self._tokenizer.readable
            return np.arange(size, dtype=np.int32), np.arange(size), [names[i] for i in ids]
        in_word = word_of >= 0
        groups = np.full(size, -1, np.int32)
        places, groups[in_word] = np.unique(word_of[in_word], return_inverse=True)
        if self._features == FIRST_PIECES:
            groups[1:][groups[1:] == groups[:-1]] = -1
        return groups, places, words
