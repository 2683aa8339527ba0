"""Unigram models of the library `tokenizers`: XLM-R, CamemBERT, XLNet.

They are SentencePiece models in another form. Text is normalized and cut at white space, each word
gets the mark "\u2581", and of all ways to cut a word into pieces the most probable one is taken.
The ids are the library's, and so those of transformers; SentencePiece itself, with which these
models were trained, gives other ids in rare texts (`bertjax.interop.sentencepiece_model`).
"""

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bertjax.base.validation import check_numbers
from bertjax.text.library_file import Check, LibraryFile, steps_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

WORD_MARK = "\u2581"  # stands before the first piece of a word
_METASPACE = {"replacement": WORD_MARK, "prepend_scheme": "always", "split": True}
# Added to the name of a special token, so that no word is equal to it: words have no spaces.
_NO_TEXT = " "


class Unigram(LibraryFile):
    """A unigram model; a piece without the mark of a word continues one."""

    KIND = "a unigram model"
    MODEL = dict(type=str, unk_id=int, byte_fallback=bool, vocab=list[tuple[str, float]])
    NEEDED = ("vocab", "unk_id")
    WITHOUT = (
        "a vocabulary and an unk_id in it, as the library tokenizers writes a unigram model: "
        "download it again"
    )
    NORMALIZERS = (
        *("Precompiled", "Replace", "Strip", "StripAccents", "Lowercase", "Nmt"),
        *("NFC", "NFD", "NFKC", "NFKD"),
    )

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, named)
        self.continues_word = np.array(
            [not (piece.startswith(WORD_MARK) or piece in self.added) for piece in self.tokens]
        )

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        words = steps_of(description, "pre_tokenizer")
        mark = words[-1] if words else {}
        return {
            "model.type": (model.get("type"), ("Unigram", None)),
            "model.byte_fallback": (model.get("byte_fallback"), (False, None)),
            "the types of its pre_tokenizer": (
                [step.get("type") for step in words],
                (["WhitespaceSplit", "Metaspace"], ["Metaspace"]),
            ),
            "pre_tokenizer.replacement": (mark.get("replacement"), (WORD_MARK,)),
            "pre_tokenizer.prepend_scheme": (mark.get("prepend_scheme"), ("always", None)),
            "pre_tokenizer.add_prefix_space": (mark.get("add_prefix_space"), (True, None)),
            "pre_tokenizer.split": (mark.get("split"), (True, None)),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        *before, _ = steps_of(description, "pre_tokenizer")
        mark = {"type": "Metaspace", **_METASPACE}
        steps = [*({"type": step["type"]} for step in before), mark]
        vocabulary = [[piece, float(score)] for piece, score in model["vocab"]]
        check_numbers(f"{origin}: model.vocab", vocabulary)
        model_fields = {"type": "Unigram", "unk_id": model["unk_id"], "byte_fallback": False}
        return {
            "model": model_fields | {"vocab": vocabulary},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "decoder": mark,
        }

    def _in_mode(self, *, special: bool) -> "Library":
        return self.library if special else self._text_library

    @functools.cached_property
    def _text_library(self) -> "Library":
        """The tokenizer for text, in which special tokens have names that no text contains."""
        from tokenizers import Tokenizer as Library

        description = self.description()
        for pair in description["model"]["vocab"]:
            pair[0] += _NO_TEXT * (pair[0] in self.special)
        for token in description["added_tokens"]:
            token["content"] += _NO_TEXT * token["special"]
        library = Library.from_buffer(json.dumps(description, ensure_ascii=False).encode())
        library.encode_special_tokens = True
        return library
