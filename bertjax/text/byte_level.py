"""Byte-level BPE (GPT-2; RoBERTa; ModernBERT, arXiv 2412.13663), with the library `tokenizers`.

Text is normalized and cut into words, which have the space before them. Each byte of a word's UTF-8
is written as one of 256 characters (a space is "\u0120"), and merges join these to pieces. So no
text is unknown, and pieces give their text back, with its spaces. If the file says
"add_prefix_space", a text that does not begin with a space gets one. Then its first word has the
same pieces as inside a text.
"""

import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.text.bpe import BPE
from bertjax.text.library_file import Check, steps_of
from bertjax.text.offsets import without_white_space

BYTES = 256  # pieces that every learned vocabulary has

_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


class ByteLevelBPE(BPE):
    """A byte-level BPE; what is not printable in `readable` is escaped."""

    KIND = "a byte-level BPE"
    WITHOUT = (
        "a vocabulary and merges in it, as the library tokenizers writes a byte-level BPE: name a "
        "vocab.txt for WordPiece, a .model for SentencePiece"
    )
    # Others remove or add characters, so that pieces would not match places in the text.
    NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")
    keeps_spaces = True

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, named)
        pieces = [None if piece in self.added else bytes_of(piece) for piece in self.tokens]
        self.readable = [
            _readable(token.encode() if piece is None else piece)
            for token, piece in zip(self.tokens, pieces, strict=True)
        ]
        self.word_links = np.array([_links(piece) for piece in pieces], np.uint8).T.copy()
        self.continues_word = self.word_links[0] != 0

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        *before, last = steps_of(description, "pre_tokenizer") or [{}]
        prefix = (False,) if before else (False, True)  # after other steps, each split gets one
        return {
            **super()._checks(description, model),
            "the last type of its pre_tokenizer": (last.get("type"), ("ByteLevel",)),
            "pre_tokenizer.add_prefix_space": (last.get("add_prefix_space"), prefix),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        split = description["pre_tokenizer"]
        return super()._library_fields(description, model, origin) | {
            "pre_tokenizer": split,
            "decoder": _DECODER,
        }

    def _spans(self, text: str, offsets: np.ndarray) -> np.ndarray:
        """The library's spans, but with all of several characters that become one."""
        starts, ends = np.maximum.accumulate(offsets, axis=0).T
        following = np.searchsorted(starts, starts, side="right")  # the piece of the next character
        ends = np.maximum(ends, np.append(starts, len(text))[following])
        return without_white_space(text, starts, ends)


# ------------------------------------------------------------------------ bytes of a piece


def _byte_of_character() -> dict[str, int]:
    """openai/gpt-2 `encoder.py`, bytes_to_unicode: printable Latin-1; the others from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + number): byte for number, byte in enumerate(unprintable)
    }


_BYTE_OF = _byte_of_character()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}


def bytes_of(piece: str) -> bytes:
    """The bytes that a piece of the vocabulary stands for."""
    try:
        return bytes(map(_BYTE_OF.__getitem__, piece))
    except KeyError:  # no text becomes this piece
        return piece.encode()


def spelled(piece: bytes) -> str:
    """The characters by which the vocabulary writes bytes. The inverse of `bytes_of`."""
    return "".join(map(_CHARACTER_OF.__getitem__, piece))


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
