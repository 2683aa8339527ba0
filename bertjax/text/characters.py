"""Words as the ids of their bytes, which models without a vocabulary read (ELMo).

As bilm-tf (bilm/data.py, UnicodeCharsVocabulary) and AllenNLP (ELMoCharacterMapper) have them: the
begin of the word, at most 48 bytes of UTF-8, the end of the word, and padding to 50. Each id is one
more than the number of the byte or the mark, because 0 pads a text. The marks of a text's begin and
end are words of their own; unlike there, no word of a text is taken for one.
"""

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertjax.base.fields import WORD_LENGTH
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer, refuse_surrogates

CHARACTERS = "characters"  # the kind
_BEGIN_TEXT, _END_TEXT, _BEGIN_WORD, _END_WORD, _PADDING = range(256, 261)

Word = tuple[int, ...]  # its ids, `WORD_LENGTH` of them


class Characters(Tokenizer):
    """A tokenizer whose pieces are words, each with a row of ids in the place of one id.

    It has the attributes of `Tokenizer` that readers of such models use. Its vocabulary has no
    pieces: every word can be read.

    `predicted` is the identity of the vocabulary whose words its model predicts; "": of none.
    """

    def __init__(self, predicted: str = "") -> None:
        self.predicted = predicted
        self.kind, self.cased, self.vocabulary, self.vocabulary_size = CHARACTERS, True, b"", 0
        self.keeps_spaces, self.usual = False, None
        self.tokens, self.readable, self.special_ids = [], [], ()
        self.roles = {}
        before, after = _word([_BEGIN_TEXT]), _word([_END_TEXT])
        self.template = Template((before,), (), (after,))  # type: ignore[arg-type]  # rows of ids
        self.identity = hashlib.sha256(CHARACTERS.encode()).hexdigest()

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return 0

    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[list[Any]]:
        """The words of each text, which white space separates; see `Tokenizer`."""
        del special
        split = [text.split() for text in texts]
        return [[word for (word,) in words] for words in self.encode_words(split)]

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[list[list[Any]]]:
        """Each word of each text as its only piece, a row of ids; see `Tokenizer`."""
        try:
            return [[[_word(word.encode())] for word in words] for words in texts]
        except UnicodeEncodeError:
            refuse_surrogates([" ".join(words) for words in texts])
            raise


@functools.lru_cache(maxsize=1)  # training and held-out text have the same vocabulary
def characters_of(tokenizer: Tokenizer) -> np.ndarray:
    """The ids of the characters of each word of a vocabulary, int16 [vocabulary_size, W].

    The begin and the end of a sentence are the marks of a text's.
    """
    words = [_word(token.encode()) for token in tokenizer.tokens]
    words[tokenizer.roles["bos"]] = _word([_BEGIN_TEXT])
    words[tokenizer.roles["eos"]] = _word([_END_TEXT])
    return np.array(words, np.int16)


def _word(numbers: Sequence[int]) -> Word:
    inside = (_BEGIN_WORD, *numbers[: WORD_LENGTH - 2], _END_WORD)
    return tuple(n + 1 for n in inside) + (_PADDING + 1,) * (WORD_LENGTH - len(inside))
