"""BPE over words, whose last piece ends with "</w>" (GPT; Sennrich et al., arXiv 1508.07909).

Text is cleaned, lower-cased and cut into words as BERT's, and merges join the characters of a word
to pieces. A character that the vocabulary lacks is unknown. The ids are the library's, and so those
of transformers' OpenAIGPTTokenizer; OpenAI's own program mends and splits text by other libraries
first (ftfy, spaCy).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertjax.base.errors import InputError
from bertjax.text.library_file import BPE_MODEL, LibraryPieces, merges_of, refuse_others
from bertjax.text.special_tokens import GPT

if TYPE_CHECKING:
    pass

WORD_END = "</w>"
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,  # as lowercase
    "lowercase": True,
}
PRE_TOKENIZER = {"type": "BertPreTokenizer"}
_DECODER = {"type": "BPEDecoder", "suffix": WORD_END}


class WordBPE(LibraryPieces):
    """A BPE over words; see `LibraryPieces`.

    Attributes:
      continues_word: bool [vocabulary], True for all pieces but the added tokens.
      word_links: uint8 [2, vocabulary]: a piece continues the word of one that does not end it.
    """

    MODEL = BPE_MODEL
    keeps_spaces = False
    KIND: ClassVar = "GPT's BPE"
    PRE_TOKENIZER: ClassVar = PRE_TOKENIZER

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, GPT | dict(named))
        self.readable = self.tokens
        self.continues_word = np.array([piece not in self.added for piece in self.tokens])
        goes_on = [not piece.endswith(WORD_END) for piece in self.tokens] & self.continues_word
        self.word_links = np.stack([self.continues_word, goes_on]).astype(np.uint8)

    def _own_parts(self, description: dict[str, Any], origin: str) -> tuple[dict, dict, dict]:
        model = description.get("model") or {}
        if model.get("vocab") is None or model.get("merges") is None:
            raise InputError(
                f"{origin}: no model with a vocabulary and merges in it, as the library tokenizers "
                "writes a BPE: download it again"
            )
        normalizer = description.get("normalizer") or {}
        pre_tokenizer = description.get("pre_tokenizer") or {}
        refuse_others(
            {
                "model.type": (model.get("type"), ("BPE",)),
                "model.continuing_subword_prefix": (
                    model.get("continuing_subword_prefix") or None,
                    (None,),
                ),
                "model.end_of_word_suffix": (model.get("end_of_word_suffix"), (WORD_END,)),
                "model.unk_token": (model.get("unk_token"), (GPT["unk"],)),
                "model.fuse_unk": (model.get("fuse_unk") or False, (False,)),
                "model.byte_fallback": (model.get("byte_fallback") or False, (False,)),
                "model.dropout": (model.get("dropout") or None, (None,)),
                "pre_tokenizer.type": (pre_tokenizer.get("type"), (self.PRE_TOKENIZER["type"],)),
                **self._normalizer_checks(normalizer),
            },
            self.KIND,
            origin,
        )
        plain = {
            "type": "BPE",
            "dropout": None,
            "unk_token": model["unk_token"],
            "continuing_subword_prefix": "",
            "end_of_word_suffix": WORD_END,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": bool(model.get("ignore_merges")),
            "vocab": model["vocab"],
            "merges": merges_of(model, origin),
        }
        return plain, self.PRE_TOKENIZER, _DECODER

    def _normalizer_checks(self, normalizer: Mapping[str, Any]) -> dict[str, tuple[Any, tuple]]:
        """The values of the file's normalizer that must be right; see `refuse_others`."""
        return {
            f"normalizer.{name}": (normalizer.get(name), (value,))
            for name, value in NORMALIZER.items()
        }
