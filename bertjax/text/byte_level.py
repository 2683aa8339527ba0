"""Byte-level BPE (GPT-2; RoBERTa; ModernBERT, arXiv 2412.13663), with the library `tokenizers`.

Text is normalized and cut into words, which have the space before them. Each byte of a word's UTF-8
is written as one of 256 characters (a space is "\u0120"), and merges join these to pieces. So no
text is unknown, and pieces give their text back, with its spaces. If the file says
"add_prefix_space", a text that does not begin with a space gets one. Then its first word has the
same pieces as inside a text.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.text.library_file import Check, steps_of
from bertjax.text.spaced_bpe import SpacedBPE

BYTES = 256  # pieces that every learned vocabulary has

_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


class ByteLevelBPE(SpacedBPE):
    """A byte-level BPE."""

    KIND = "a byte-level BPE"
    WITHOUT = (
        "a vocabulary and merges in it, as the library tokenizers writes a byte-level BPE: name a "
        "vocab.txt for WordPiece, a .model for SentencePiece"
    )
    # Others remove or add characters, so that pieces would not match places in the text.
    NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")

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

    def _bytes_of(self, piece: str) -> bytes:
        return bytes_of(piece)


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
