"""Whole words as pieces, the frequent ones first, as bilm-tf's vocabularies have them (ELMo).

Text is cut into words as BERT's, before these become pieces; a word that the vocabulary lacks is
unknown. The ids are those of a WordLevel model of the library `tokenizers`. The first three pieces
are the begin of a sentence, its end, and the unknown word (bilm-tf's README, "vocabulary file").
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import UNKNOWN_WORD
from bertjax.text.library_file import Check, LibraryFile
from bertjax.text.special_tokens import WORDS

FIRST = (WORDS["bos"], WORDS["eos"], WORDS["unk"])
assert FIRST[UNKNOWN_WORD] == WORDS["unk"]


class WordLevel(LibraryFile):
    """A vocabulary of words, of which none continues another."""

    KIND = "a vocabulary of words"
    MODEL = {"type": str, "unk_token": str, "vocab": dict[str, int]}
    NEEDED = ("vocab",)
    WITHOUT = "a vocabulary in it, as the library tokenizers writes one of words: download it again"
    NORMALIZERS = ("NFC", "BertNormalizer")
    NAMES = WORDS

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, named)
        self.continues_word = np.zeros(len(self.tokens), bool)
        if tuple(self.tokens[: len(FIRST)]) != FIRST:
            raise InputError(
                f"{origin}: its first words are {' '.join(self.tokens[: len(FIRST)])}, and must be "
                f"{' '.join(FIRST)}: learn one with --tokenizer=words of launch/prepare_corpus.py"
            )

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        split = (description.get("pre_tokenizer") or {}).get("type")
        return {
            "model.type": (model.get("type"), ("WordLevel",)),
            "model.unk_token": (model.get("unk_token"), (WORDS["unk"],)),
            "pre_tokenizer.type": (split, ("BertPreTokenizer",)),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        return {
            "model": {name: model[name] for name in ("type", "unk_token", "vocab")},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": None,
        }
