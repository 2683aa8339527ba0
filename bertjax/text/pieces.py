"""The pieces of a vocabulary, and how the library `tokenizers` makes them from text."""

import abc
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertjax.text.offsets import after_marks, without_white_space
from bertjax.text.template import Template

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class LibraryPieces(abc.ABC):
    """A tokenizer of the library, with the members that `bertjax.text.tokenizer` needs.

    A subclass is a kind of model: what its file may have, and what its pieces mean.

    Attributes:
      vocabulary: the bytes of the vocabulary file.
      cased: False if text is lower-cased first.
      library: the library's tokenizer.
      tokens: the piece of each id, as the file writes it.
      readable: the pieces for people to read.
      roles: the id of each role's special token.
      added: the names of the added tokens, which are found in a text before its words.
      template: None if the file has none.
    """

    keeps_spaces: ClassVar[bool] = False
    vocabulary: bytes
    cased: bool
    library: "Library"
    tokens: list[str]
    readable: list[str]
    roles: dict[str, int]
    added: Collection[str]
    template: Template | None = None
    continues_word: np.ndarray
    word_links: np.ndarray | None = None
    _TEXTS_AT_ONCE = 1000  # with offsets, the library takes about 20 kB for a paragraph

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """A new copy of the content of the tokenizer.json."""

    def _in_mode(self, *, special: bool) -> "Library":
        """The library's tokenizer that reads names of special tokens as such, or else as text."""
        self.library.encode_special_tokens = not special
        return self.library

    def _spans(self, text: str, offsets: np.ndarray) -> np.ndarray:
        """The library's offsets as spans of `Tokenizer.encode_with_offsets`, int32 [N, 2]."""
        starts, ends = np.maximum.accumulate(offsets, axis=0).T
        return without_white_space(text, starts, after_marks(text)[ends])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens are text."""
        return self._encode(texts, special=False)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens mean themselves, as in transformers."""
        return self._encode(texts, special=True)

    def _encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        library = self._in_mode(special=special)
        encodings = library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        """The ids of `encode`, and the characters of each piece."""
        for first in range(0, len(texts), self._TEXTS_AT_ONCE):
            some = list(texts[first : first + self._TEXTS_AT_ONCE])
            library = self._in_mode(special=False)
            encodings = library.encode_batch(some, add_special_tokens=False)
            for text, encoding in zip(some, encodings, strict=True):
                offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                yield encoding.ids, self._spans(text, offsets)

    def decode(self, ids: list[int]) -> str:
        """The text of ids, as the library gives it."""
        return self._in_mode(special=True).decode(ids, skip_special_tokens=False)
