"""BPE over words, whose last piece ends with "</w>" (GPT; Sennrich et al., arXiv 1508.07909).

Text is cleaned, lower-cased and cut into words as BERT's, and merges join the characters of a word
to pieces. A character that the vocabulary lacks is unknown. The ids are the library's, and so those
of transformers' OpenAIGPTTokenizer; OpenAI's own program mends and splits text by other libraries
first (ftfy, spaCy).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bertjax.text.bpe import BPE
from bertjax.text.library_file import Check
from bertjax.text.special_tokens import GPT

WORD_END = "</w>"
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,  # as lowercase
    "lowercase": True,
}
PRE_TOKENIZER = {"type": "BertPreTokenizer"}


class WordBPE(BPE):
    """A BPE over words.

    Attributes:
      continues_word: bool [vocabulary], True for all pieces but the added tokens.
      word_links: uint8 [2, vocabulary]: a piece continues the word of one that does not end it.
    """

    KIND = "GPT's BPE"
    WITHOUT = (
        "a vocabulary and merges in it, as the library tokenizers writes a BPE: download it again"
    )
    NORMALIZERS: ClassVar[Sequence[str]] = ("BertNormalizer",)
    NAMES = GPT
    PREFIX, SUFFIX = "", WORD_END
    PRE_TOKENIZER: ClassVar = PRE_TOKENIZER

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        super().__init__(data, origin, named)
        self.continues_word = np.array([piece not in self.added for piece in self.tokens])
        goes_on = [not piece.endswith(WORD_END) for piece in self.tokens] & self.continues_word
        self.word_links = np.stack([self.continues_word, goes_on]).astype(np.uint8)

    def _checks(self, description: dict[str, Any], model: dict[str, Any]) -> Mapping[str, Check]:
        split = (description.get("pre_tokenizer") or {}).get("type")
        return {
            **super()._checks(description, model),
            "model.unk_token": (model.get("unk_token"), (GPT["unk"],)),
            "model.fuse_unk": (model.get("fuse_unk") or False, (False,)),
            "pre_tokenizer.type": (split, (self.PRE_TOKENIZER["type"],)),
            **self._normalizer_checks(description.get("normalizer") or {}),
        }

    def _library_fields(self, description: dict, model: dict, origin: str) -> dict[str, Any]:
        return super()._library_fields(description, model, origin) | {
            "pre_tokenizer": self.PRE_TOKENIZER,
            "decoder": {"type": "BPEDecoder", "suffix": WORD_END},
        }

    def _normalizer_checks(self, normalizer: Mapping[str, Any]) -> dict[str, Check]:
        return {
            f"normalizer.{name}": (normalizer.get(name), (value,))
            for name, value in NORMALIZER.items()
        }
