"""Whole words as pieces, the frequent ones first, as bilm-tf's vocabularies have them (ELMo).

Text is cut into words as BERT's, before these become pieces; a word that the vocabulary lacks is
unknown. The ids are those of a WordLevel model of the library `tokenizers`. The first three pieces
are the begin of a sentence, its end, and the unknown word (bilm-tf's README, "vocabulary file").
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import UNKNOWN_WORD
from bertjax.text.library_file import LibraryPieces, check_normalizers, refuse_others
from bertjax.text.special_tokens import WORDS

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

FIRST = (WORDS["bos"], WORDS["eos"], WORDS["unk"])
assert FIRST[UNKNOWN_WORD] == WORDS["unk"]


class WordLevel(LibraryPieces):
    """A vocabulary of words, of which none continues another; see `LibraryPieces`."""

    MODEL = {"type": str, "unk_token": str, "vocab": dict[str, int]}
    keeps_spaces = False
    word_links = None

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, WORDS | dict(named))
        self.readable = self.tokens
        self.continues_word = np.zeros(len(self.tokens), bool)
        if tuple(self.tokens[: len(FIRST)]) != FIRST:
            raise InputError(
                f"{origin}: its first words are {' '.join(self.tokens[: len(FIRST)])}, and must be "
                f"{' '.join(FIRST)}: learn one with --tokenizer=words of launch/prepare_corpus.py"
            )

    def _own_parts(self, description: dict[str, Any], origin: str) -> tuple[dict, dict, None]:
        model = description.get("model") or {}
        pre_tokenizer = description.get("pre_tokenizer") or {}
        refuse_others(
            {
                "model.type": (model.get("type"), ("WordLevel",)),
                "model.unk_token": (model.get("unk_token"), (WORDS["unk"],)),
                "pre_tokenizer.type": (pre_tokenizer.get("type"), ("BertPreTokenizer",)),
            },
            "a vocabulary of words",
            origin,
        )
        check_normalizers(description, ("NFC", "BertNormalizer"), origin)
        plain = {name: model[name] for name in ("type", "unk_token", "vocab")}
        return plain, {"type": "BertPreTokenizer"}, None


def empty_word_library(*, cased: bool) -> "Library":
    """The library's tokenizer of this kind, to be trained."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    library = Library(models.WordLevel({}, unk_token=WORDS["unk"]))
    steps = [normalizers.NFC(), normalizers.BertNormalizer(lowercase=not cased)]
    library.normalizer = normalizers.Sequence(steps)  # type: ignore[arg-type]
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library
