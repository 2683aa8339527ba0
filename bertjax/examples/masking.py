"""Which tokens are hidden, and behind what (sections 3.1 and A.1, Table 8)."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bertjax.examples.draws import Draws

_NEVER = np.uint32(0xFFFFFFFF)


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """How masked-LM input is made.

    Attributes:
      rate: share of a sequence's tokens that are predicted.
      mask, random: of those, the share that becomes [MASK], and a random token; the rest
        stays as it is.
      whole_words: all pieces of a word together, or none.

    Raises:
      ValueError: shares outside [0, 1].
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    whole_words: bool = False

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise ValueError(f"masking rate={self.rate}: must be in (0, 1)")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1 + 1e-9:
            raise ValueError(
                f"masking mask={self.mask}, random={self.random}: shares of a whole, "
                "the rest is kept"
            )

    def width(self, length: int) -> int:
        """P, the most positions predicted in a sequence: 20 of 128 tokens, 77 of 512."""
        return int(np.ceil(round(length * self.rate, 6)))


class Masked(NamedTuple):
    """Positions ascending, unused places at the end; all [R, P]."""

    positions: np.ndarray  # int32, 0 where unused
    ids: np.ndarray  # int32, the original tokens, 0 where unused
    weights: np.ndarray  # float32, 1 or 0


class Masker:
    """Hides tokens of whole batches.

    Args:
      rule: what is hidden.
      mask_id: the id of [MASK].
      ordinary: bool [V], False on special tokens: they are never hidden, nor put in.
      continues_word: bool [V], True on pieces inside a word; used for whole words.
    """

    def __init__(
        self, rule: MaskingRule, *, mask_id: int, ordinary: np.ndarray, continues_word: np.ndarray
    ):
        self._rule, self._mask_id, self._ordinary = rule, mask_id, ordinary
        self._continues_word = continues_word
        self._replacements = np.flatnonzero(ordinary).astype(np.int32)

    def mask(self, ids: np.ndarray, lengths: np.ndarray, draws: Draws, index: np.ndarray) -> Masked:
        """Hides tokens in `ids`, in place, and returns what to predict.

        Args:
          ids: int32 [R, S], with [CLS], [SEP] and padding in place.
          lengths: int64 [R], tokens of each row, special ones counted.
          draws, index: the stream and the examples' indices [R].
        """
        rows, length = ids.shape
        width = self._rule.width(length)
        maskable = self._ordinary[ids]
        # The expected count is exactly the rate: the fraction decides by chance. At least one
        # is predicted, as in the reference.
        count = np.floor(lengths * self._rule.rate + draws.uniform("count", index)).astype(np.int64)
        count = np.minimum(np.clip(count, 1, width), maskable.sum(1))

        # A random order of the positions: random high bits, the position itself in the low ones.
        low = np.uint32((1 << (length - 1).bit_length()) - 1)
        order = draws.bits(length, "order of masking", index)
        if self._rule.whole_words:
            order, count = self._by_words(ids, maskable, order & ~low, low, count, width)
        else:
            order &= ~low
            order |= np.arange(length, dtype=np.uint32)
            order[~maskable] = _NEVER
            order = np.sort(order, axis=1)[:, :width]
        used = np.arange(width) < count[:, None]
        positions = np.sort(np.where(used, order & low, _NEVER), axis=1)
        positions = np.where(used, positions, 0).astype(np.int32)

        row = np.arange(rows)[:, None]
        original = np.where(used, ids[row, positions], 0)
        ids[row, positions] = np.where(
            used, self._replace(original, draws, index, width), ids[row, positions]
        )
        return Masked(positions, original, used.astype(np.float32))

    def _by_words(self, ids, maskable, order, low, count, width):
        """The order of positions where whole words are taken, or left, together.

        Words in random order are taken while they fit into `count`; what remains is filled
        with words of a single piece.
        """
        length = ids.shape[1]
        column = np.arange(length, dtype=np.uint32)
        after_maskable = np.roll(maskable, 1, axis=1)
        after_maskable[:, 0] = False
        begins = maskable & ~(self._continues_word[ids] & after_maskable)
        word = np.maximum.accumulate(np.where(begins, column, 0), axis=1).astype(np.int64)
        order = np.take_along_axis(order, word, axis=1) | column
        order[~maskable] = _NEVER
        order.sort(axis=1)  # words in random order, the pieces of each in theirs

        present = order != _NEVER
        begins = np.take_along_axis(begins, (order & low).astype(np.int64), axis=1) & present
        boundary = np.concatenate([begins | ~present, np.ones_like(begins[:, :1])], axis=1)
        place = np.arange(length + 1)
        whole = np.where(boundary & (place <= count[:, None]), place, 0).max(1)[:, None]
        single = begins & boundary[:, 1:] & (place[:-1] >= whole)
        room = count[:, None] - whole
        taken = (place[:-1] < whole) | (single & (np.cumsum(single, axis=1) <= room))
        order = np.sort(np.where(taken & present, order, _NEVER), axis=1)[:, :width]
        return order, (taken & present).sum(1)

    def _replace(self, original, draws, index, width):
        """80 % [MASK], 10 % a random token, 10 % the token itself (by default)."""
        bits = draws.bits(2 * width, "replacement", index)
        chance, which = bits[:, :width] * 2.0**-32, bits[:, width:]
        rule, choices = self._rule, self._replacements
        random = choices[((which.astype(np.uint64) * np.uint64(len(choices))) >> np.uint64(32))]
        kept_or_random = np.where(chance < rule.mask + rule.random, random, original)
        return np.where(chance < rule.mask, self._mask_id, kept_or_random)
