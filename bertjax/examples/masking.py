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
        maskable = self._ordinary.take(ids)  # twice as fast as indexing
        # The expected count is exactly the rate: the fraction decides by chance. At least one
        # is predicted, as in the reference.
        count = np.floor(lengths * self._rule.rate + draws.uniform("count", index)).astype(np.int64)
        count = np.minimum(np.clip(count, 1, width), maskable.sum(1))

        # A random order of the positions: random high bits, the position itself in the low ones.
        # The last position is never maskable, so that no number here is _NEVER by chance.
        low = np.uint32((1 << (length - 1).bit_length()) - 1)
        order = draws.bits(length, "order of masking", index) & ~low
        if self._rule.whole_words:
            order = self._share_in_words(order, ids, maskable)
        order |= np.arange(length, dtype=np.uint32)
        order[~maskable] = _NEVER
        order.sort(axis=1)
        if self._rule.whole_words:
            taken = _whole_words(order & ~low, count)
        else:
            order = order[:, :width]
            taken = np.arange(width) < count[:, None]
        positions = np.sort(np.where(taken, order & low, _NEVER), axis=1)[:, :width]
        used = positions != _NEVER
        positions = np.where(used, positions, 0).astype(np.int32)

        row = np.arange(rows)[:, None]
        found = ids[row, positions]
        ids[row, positions] = np.where(used, self._replace(found, draws, index), found)
        return Masked(positions, np.where(used, found, 0), used.astype(np.float32))

    def _share_in_words(self, order, ids, maskable):
        """Gives all pieces of a word the number of its first."""
        continues = self._continues_word.take(ids)
        continues[:, 1:] &= maskable[:, :-1]
        continues[:, 0] = False
        place = np.arange(ids.size, dtype=np.int32).reshape(ids.shape)
        first = np.maximum.accumulate(np.where(continues, 0, place).ravel())
        return order.take(first).reshape(order.shape)

    def _replace(self, original, draws, index):
        """80 % [MASK], 10 % a random token, 10 % the token itself (by default)."""
        width = original.shape[1]
        bits = draws.bits(2 * width, "replacement", index)
        chance, which = bits[:, :width] * 2.0**-32, bits[:, width:]
        rule, choices = self._rule, self._replacements
        random = choices[((which.astype(np.uint64) * np.uint64(len(choices))) >> np.uint64(32))]
        kept_or_random = np.where(chance < rule.mask + rule.random, random, original)
        return np.where(chance < rule.mask, self._mask_id, kept_or_random)


def _whole_words(words: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Which tokens to take, of tokens in random order with the pieces of a word side by side.

    Words are taken as they come while they fit into `count`; what remains is filled with the
    next words of a single piece.

    Args:
      words: uint32 [R, S], equal for the pieces of one word; special tokens, at least two, last.
      count: int64 [R], tokens to take at most.

    Returns:
      bool [R, S].
    """
    begins = np.ones(words.shape, bool)
    np.not_equal(words[:, 1:], words[:, :-1], out=begins[:, 1:])
    place = np.arange(words.shape[1])
    fits = begins & (place <= count[:, None])
    whole = words.shape[1] - 1 - fits[:, ::-1].argmax(1)[:, None]  # the last place that fits
    single = begins & (place >= whole)
    single[:, :-1] &= begins[:, 1:]
    single[:, -1] = False
    room = count[:, None] - whole
    return (place < whole) | (single & (np.cumsum(single, axis=1, dtype=np.int32) <= room))
