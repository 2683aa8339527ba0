"""XLM's BPE: over words that Moses cuts, whose last piece ends with "</w>" (arXiv 1901.07291).

The package sacremoses mends punctuation and cuts the words, by the rules of English, as
transformers' XLMTokenizer does if it is not told a language. Then text may be lower-cased and lose
its accents.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.text.library_file import Check
from bertjax.text.special_tokens import GPT
from bertjax.text.word_bpe import WordBPE

SPLIT_AT_SPACES = {"type": "WhitespaceSplit"}
FOLDED = {"type": "Lowercase"}  # of a vocabulary without upper case; `MosesBPE` strips accents
# Files from before have this. It strips the vowel signs of Indian scripts, too, which XLM keeps;
# models that learned from such text go on with it.
_FORMER = {
    "type": "Sequence",
    "normalizers": [{"type": "Lowercase"}, {"type": "NFD"}, {"type": "StripAccents"}],
}
# The names of tokenization_xlm.py of transformers.
XLM = GPT | dict(pad="<pad>", cls="</s>", sep="</s>", mask="<special1>", bos="<s>")


class MosesBPE(WordBPE):
    """A BPE over the words of Moses; if not cased, text also loses its accents."""

    KIND = "XLM's BPE"
    NORMALIZERS = ("Lowercase", "NFD", "StripAccents")
    PRE_TOKENIZER = SPLIT_AT_SPACES

    def __init__(self, data: bytes, origin: str, named: Mapping[str, str]):
        try:
            from sacremoses import MosesPunctNormalizer, MosesTokenizer
        except ModuleNotFoundError as error:
            raise InputError(
                f"{origin}: XLM's vocabulary needs sacremoses: {install('xlm')}"
            ) from error
        super().__init__(data, origin, named)
        self._mend = MosesPunctNormalizer(lang="en", pre_replace_unicode_punct=True).normalize
        self._cut = MosesTokenizer(lang="en").tokenize

    def _normalizer_checks(self, normalizer: Mapping[str, Any]) -> dict[str, Check]:
        return {"normalizer": (normalizer, ({}, FOLDED, _FORMER))}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens are text."""
        return super().encode([self._words(text) for text in texts])

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens mean themselves."""
        border = re.compile(f"({'|'.join(map(re.escape, sorted(self.special)))})")
        splits_of = map(border.split, texts)
        return super().encode_prompts(
            [
                " ".join(p if p in self.special else self._words(p) for p in splits)
                for splits in splits_of
            ]
        )

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        """Raises InputError: the words of Moses have no places in the text."""
        raise InputError(
            "XLM's vocabulary cannot say where its pieces stand in a text, because Moses changes "
            "the text: take a model with another vocabulary here"
        )

    def _words(self, text: str) -> str:
        text.encode()  # raises for half a surrogate pair, which would vanish below
        text = "".join(c for c in self._mend(text) if unicodedata.category(c)[0] != "C")
        text = " ".join(self._cut(text, return_str=False, escape=False))
        if self.cased:
            return text
        decomposed = unicodedata.normalize("NFD", text.lower())
        return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()
