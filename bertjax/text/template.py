"""How one or two texts become a sequence: the special tokens around them, and the token types.

BERT (section 3): [CLS] A [SEP] and [CLS] A [SEP] B [SEP], type 1 from B on. RoBERTa: <s> A </s> and
<s> A </s></s> B </s>, all of type 0. XLNet: A <sep> <cls> and A <sep> B <sep> <cls>, with a type of
its own for <cls>. EuroBERT: its first token before each text. GPT-2: none.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np


class TokenSequence(NamedTuple):
    """The S tokens of a sequence."""

    ids: list[int]
    token_types: list[int]


class Places(NamedTuple):
    """Where the texts of R sequences begin; all arrays are int64 [R]."""

    a: np.ndarray
    b: np.ndarray  # `end` if there is no B
    end: np.ndarray  # after the last special token


@dataclasses.dataclass(frozen=True)
class Template:
    """The sequences before A after, and before A between B after."""

    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    second_type: int = 1  # of B, and of `after` if there is a B; other tokens have type 0
    last_type: int | None = None  # of the last special token, if it differs
    between_type: int = 0  # of `between`

    @classmethod
    def usual(cls, roles: Mapping[str, int]) -> Self:
        """The template of a vocabulary whose files give none, from the id of each role.

        It is RoBERTa's if cls is bos and sep is eos, else BERT's. Without cls or sep it is empty.
        """
        if "cls" not in roles or "sep" not in roles:
            return cls()
        first, last = (roles["cls"],), (roles["sep"],)
        if (roles.get("bos"), roles.get("eos")) == first + last:
            return cls(first, last + last, last, second_type=0)
        return cls(first, last, last)

    @classmethod
    def xlnet(cls, roles: Mapping[str, int]) -> Self:
        """XLNet's template of a vocabulary with these special tokens."""
        sep, last = (roles["sep"],), (roles["cls"],)
        return cls((), sep, sep + last, last_type=2)

    def specials(self, *, pair: bool) -> int:
        """How many special tokens a sequence of one text, or of a pair, has."""
        return len(self.before) + len(self.between) * pair + len(self.after)

    def begins(self, a_length: int) -> tuple[int, int]:
        """Where A and B begin in a sequence."""
        a = len(self.before)
        return a, a + a_length + len(self.between)

    def sequence(self, a: list[int], b: list[int] | None = None) -> TokenSequence:
        """The sequence of one or two texts, which are given as their ids."""
        head, between = [*self.before, *a], [] if b is None else [*self.between]
        tail = [*(b or ()), *self.after]
        ids = head + between + tail
        types = [0] * len(head) + [self.between_type] * len(between)
        types += [0 if b is None else self.second_type] * len(tail)
        if self.after and self.last_type is not None:
            types[-1] = self.last_type
        return TokenSequence(ids, types)

    def write(
        self,
        ids: np.ndarray,
        begin: np.ndarray,
        a_length: np.ndarray,
        b_length: np.ndarray | None = None,
    ) -> Places:
        """Writes the special tokens of R sequences, and returns where their texts belong.

        `ids` are int32 [N]; `begin` and the lengths of the texts are int64 [R].
        """

        def put(special: tuple[int, ...], places: np.ndarray) -> np.ndarray:
            for number, each in enumerate(special):
                ids[places + number] = each
            return places + len(special)

        a = put(self.before, begin)
        end = a + a_length
        if b_length is not None:
            b = put(self.between, end)
            end = b + b_length
        end = put(self.after, end)
        return Places(a, end if b_length is None else b, end)

    def token_types(self, length: int, b: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The types of R rows, int32 [R, length], 0 after `end`; `b` and `end` are of `Places`."""
        column = np.arange(length, dtype=np.int32)
        b, end = (each.astype(np.int32)[:, None] for each in (b, end))
        types = ((column >= b) & (column < end)) * np.int32(self.second_type)
        between = (column >= b - len(self.between)) & (column < b) & (b < end)
        types += between * np.int32(self.between_type)
        if self.last_type is not None:
            np.put_along_axis(types, end - 1, self.last_type, axis=1)
        return types
