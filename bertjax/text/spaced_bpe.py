"""BPEs whose pieces have the white space of a text, so that they give it back."""

import abc
import unicodedata
from collections.abc import Mapping

import numpy as np

from bertjax.text.bpe import BPE
from bertjax.text.offsets import without_white_space


class SpacedBPE(BPE):
    """A BPE of a text with its spaces; what is not printable in `readable` is escaped."""

    keeps_spaces = True

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, named)
        pieces = [None if piece in self.added else self._bytes_of(piece) for piece in self.tokens]
        self.readable = [
            _readable(token.encode() if piece is None else piece)
            for token, piece in zip(self.tokens, pieces, strict=True)
        ]
        self.word_links = np.array([_links(piece) for piece in pieces], np.uint8).T.copy()
        self.continues_word = self.word_links[0] != 0

    @abc.abstractmethod
    def _bytes_of(self, piece: str) -> bytes:
        """The bytes of text that a piece of the vocabulary stands for."""

    def _spans(self, text: str, offsets: np.ndarray) -> np.ndarray:
        """The library's spans, but with all of several characters that become one."""
        starts, ends = np.maximum.accumulate(offsets, axis=0).T
        following = np.searchsorted(starts, starts, side="right")  # the piece of the next character
        ends = np.maximum(ends, np.append(starts, len(text))[following])
        return without_white_space(text, starts, ends)


def _readable(piece: bytes) -> str:
    """The text of a piece on one line; bytes of an incomplete character are escaped."""
    text = piece.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ------------------------------------------------------------------------ words of pieces

# Classes of characters. In GPT-2's pattern a word ends where the class changes; white space has no
# class. A character that is split over pieces counts as a letter.
_LETTER, _NUMBER, _OTHER, _PART = 1, 2, 4, 8
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of a character after its first


def _links(piece: bytes | None) -> tuple[int, int]:
    """The classes with which a piece continues a word, and those that may follow in the word."""
    if piece is None:
        return 0, 0
    if piece == b" ":  # it belongs to the word after it
        return 0, _LETTER | _NUMBER | _OTHER
    in_word = piece.lstrip(_CONTINUATION)
    text = in_word.decode("utf-8", "ignore")
    if len(in_word) < len(piece):
        first = _PART
    else:
        first = _class_of(text[0]) if text else _LETTER
    if len(text.encode()) < len(in_word):
        last = _PART
    else:
        last = _class_of(text[-1]) if text else _PART | _LETTER
    return first, last


def _class_of(character: str) -> int:
    if character.isspace():
        return 0
    return {"L": _LETTER, "N": _NUMBER}.get(unicodedata.category(character)[0], _OTHER)
