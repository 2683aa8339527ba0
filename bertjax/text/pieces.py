"""WordPiece and SentencePiece have this class in common."""

import abc
import re
from collections.abc import Sequence
from itertools import chain, zip_longest

from bertjax.text.special_tokens import BERT, SPECIAL_TOKENS


class Pieces(abc.ABC):
    """The pieces of a vocabulary with BERT's special tokens."""

    tokens: list[str]
    roles: dict[str, int]
    template = None
    keeps_spaces = False
    word_links = None

    @property
    def readable(self) -> list[str]:
        return self.tokens

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, as plain text."""

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        special = {name: self.roles[role] for role, name in BERT.items()}
        border = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
        encoded = []
        for parts in map(border.split, texts):
            plain, between = self.encode(parts[::2]), [[special[part]] for part in parts[1::2]]
            in_turn = chain.from_iterable(zip_longest(plain, between, fillvalue=()))
            encoded.append(list(chain.from_iterable(in_turn)))
        return encoded
