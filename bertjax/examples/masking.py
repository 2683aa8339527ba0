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
      whole_words: all pieces of a word together, or none; each word has the same chance (in the
        reference a long one has less: it does not fit so often).

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
        size = maskable.sum(1)
        count = np.minimum(np.clip(count, 1, width), size)

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
            start = draws.below(size, "first place", index)
            flat, taken = _whole_words(order & ~low, size, count, start, 2 * width + 16)
            order = order.take(flat)
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


def _whole_words(
    words: np.ndarray, size: np.ndarray, count: np.ndarray, first: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens to take, of tokens in random order with the pieces of a word side by side.

    The tokens are a circle. Words that begin in `count` places of it, from a random one on, are
    taken: so each has the same chance. They have `count` tokens on average. What is too much or
    too little of that is made up for by words of a single piece; where these are too few, the last
    word is not taken.

    Args:
      words: uint32 [R, S], equal for the pieces of one word; special tokens, at least two, last.
      size: int64 [R], tokens that are not special.
      count: int64 [R], tokens to take at most.
      first: int64 [R], the random place, less than `size`.
      width: W, how far the circle is followed, for the ends of words and for single pieces: more
        than twice the largest count.

    Returns:
      int64 [R, W], indices into `words` flat, and bool [R, W], whether the token there is taken.
    """
    # With a place before and one behind: they tell whether words end there.
    column = np.arange(-1, width + 1, dtype=np.int32)
    size, count, first = (each.astype(np.int32)[:, None] for each in (size, count, first))
    places = (first + column) % np.maximum(size, 1)
    flat = places + np.arange(len(words))[:, None] * words.shape[1]
    found = words.take(flat)
    begins = (found[:, 1:] != found[:, :-1]) | (places[:, 1:] == 0)
    single = begins[:, :-1] & begins[:, 1:]
    begins, column, flat = begins[:, :-1], column[1:-1], flat[:, 1:-1]
    # Before `start` is the end of a word that begins at the other end of the circle.
    start = np.where(begins, column, width).min(1, keepdims=True)
    stop = np.minimum(start + size, width)
    single &= column < stop
    early = column < count
    last = np.where(begins & early, column, -1).max(1, keepdims=True)
    behind = np.where(begins & ~early, column, stop).min(1, keepdims=True)

    def evened(rows, stop):
        taken = (column >= start[rows]) & (column < stop)
        surplus = np.maximum(stop - start[rows], 0) - count[rows]
        changed = single[rows] & (taken == (surplus > 0))
        rank = np.cumsum(changed, axis=1, dtype=np.int32)
        return taken ^ (changed & (rank <= np.abs(surplus))), rank[:, -1] >= surplus[:, 0]

    taken, enough = evened(slice(None), np.where(last < 0, 0, np.minimum(behind, stop)))
    few = np.flatnonzero(~enough)
    taken[few], _ = evened(few, last[few])
    return flat, taken
