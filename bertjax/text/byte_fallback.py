"""BPE of characters with bytes for those that have no piece (Gemma; mmBERT, arXiv 2509.06888).

A space is written as "\u2581", and merges join the characters of the whole text, which is not cut
into words. A character without a piece becomes the pieces of its bytes, "<0x00>" to "<0xFF>". So
pieces give their text back, with its spaces.
"""

import re
from collections.abc import Mapping
from typing import Any

from bertjax.text.library_file import Check
from bertjax.text.spaced_bpe import SpacedBPE
from bertjax.text.unigram import WORD_MARK

SPACES_MARKED = {"type": "Replace", "pattern": {"String": " "}, "content": WORD_MARK}
# It finds no space, because these are marked by then.
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"} | {
    "invert": False
}
_MARKS_TO_SPACES = {"type": "Replace", "pattern": {"String": WORD_MARK}, "content": " "}
_DECODERS = [_MARKS_TO_SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class ByteFallbackBPE(SpacedBPE):
    """A BPE with byte fallback."""

    KIND = "a BPE with byte fallback"
    WITHOUT = (
        "a vocabulary and merges in it, as the library tokenizers writes a BPE: download it again"
    )
    NORMALIZERS = ("Replace",)
    BYTE_FALLBACK = True

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        return {
            **super()._checks(description, model),
            "pre_tokenizer": (description.get("pre_tokenizer"), (SPLIT, None)),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        fields = super()._library_fields(description, model, origin)
        # Names of special tokens are found before the merges, which would make them of plain text.
        special = {token["content"] for token in description["added_tokens"] if token["special"]}
        merges = [pair for pair in fields["model"]["merges"] if "".join(pair) not in special]
        return {
            "model": fields["model"] | {"merges": merges},
            "pre_tokenizer": SPLIT,
            "decoder": {"type": "Sequence", "decoders": _DECODERS},
        }

    def _bytes_of(self, piece: str) -> bytes:
        return bytes_of(piece)


def bytes_of(piece: str) -> bytes:
    """The bytes of text that a piece stands for."""
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(WORD_MARK, " ").encode()


def spelled(text: bytes) -> str:
    """The characters by which the vocabulary writes a text; "" if it has half a character."""
    return text.decode("utf-8", "ignore").replace(" ", WORD_MARK)
