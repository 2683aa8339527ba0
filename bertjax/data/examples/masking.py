"""Masking: which tokens are predicted, and what replaces them (sections 3.1 and A.1, Table 8)."""

import dataclasses
from typing import Annotated, NamedTuple

import numpy as np

from bertjax.base.limits import CountOrNone, Meta, Share, check_limits, require
from bertjax.data.examples.draws import Draws

_NEVER = np.uint32(0xFFFFFFFF)
_COSINE = 1 - 2 / np.pi  # the mean of 1 - cos(pi u / 2), u uniform


@dataclasses.dataclass(frozen=True)
class MaskingRule:
    """The settings of masked-LM input.

    Attributes:
      rate: the share of a sequence's tokens that are predicted.
      cosine: whether each sequence draws a rate of its own, `rate` times
        (1 - cos(pi u / 2)) / (1 - 2 / pi) for a uniform u. Most are low, a few are high, and their
        mean is `rate`. With 0.363, they are in [0, 1].
      mask, random: the shares of the predicted tokens that become [MASK] and a random token; the
        rest is not changed.
      whole_words: whether the tokens of a word are masked together. Each word has the same chance;
        in the reference, a long word has a smaller one, because it does not always fit. In a
        byte-level BPE, a word is a run of letters, of digits or of other characters, with the space
        before it (GPT-2's pattern); a character that is split over tokens counts as a letter.
      copies: 0: a row is masked anew in each epoch (dynamic masking). 10: it is masked in 10 ways,
        which later epochs repeat (static masking; RoBERTa, section 4.1). This needs a layout that
        has the same rows in each epoch.

    Raises:
      ValueError: a share is outside [0, 1], or the number of copies is negative.
    """

    rate: Annotated[float, Meta(gt=0, lt=1)] = 0.15
    cosine: bool = False
    mask: Share = 0.8
    random: Share = 0.1
    whole_words: bool = False
    copies: CountOrNone = 0

    def __post_init__(self):
        check_limits(self)
        most = f"must be at most {_COSINE:.4f} with cosine=True: some sequences have a higher one"
        require(not self.cosine or self.rate <= _COSINE, self, "rate", most)
        least = self.mask + self.random <= 1 + 1e-9
        require(least, self, "mask", f"must be at most 1 together with random={self.random}")

    def width(self, length: int) -> int:
        """P, the most predicted positions of a sequence: 20 of 128 tokens, 77 of 512."""
        if length * self.rate < 0.5:
            raise ValueError(
                f"masking rate={self.rate} predicts no token in length={length}: "
                f"must be at least {0.5 / length:.2g}"
            )
        most = self.rate / _COSINE if self.cosine else self.rate
        return int(np.ceil(round(length * most, 6)))

    def rates(self, draws: Draws, index: np.ndarray) -> np.ndarray | float:
        """The rate of each sequence, float64 [R], or of all; for the arguments see `Masker`."""
        if not self.cosine:
            return self.rate
        return self.rate / _COSINE * (1 - np.cos(np.pi / 2 * draws.uniform("rate", index)))

    def unigram_baseline(self, frequencies: np.ndarray) -> float:
        """The least mean loss (nats) of a guess that sees the predicted position and nothing else.

        At a [MASK], this is the entropy of the words, whose shares are `frequencies` [V]. Any other
        token that is shown is more likely the right one than a random one, unless it is rare. A
        model that does not use the context yet cannot have a lower loss.
        """
        entropy = -_x_log_x(frequencies).sum()
        unchanged = max(1 - self.mask - self.random, 0.0)
        shown = unchanged * frequencies + self.random / len(frequencies)
        # Given the token that is shown: the probability that it is unchanged, that it is right,
        # and the sum of p log p over all other tokens.
        certain = unchanged * frequencies / np.where(shown > 0, shown, 1.0)
        right = certain + (1 - certain) * frequencies
        other_tokens = (1 - frequencies) * _x_log_x(1 - certain)
        other_tokens -= (1 - certain) * (entropy + _x_log_x(frequencies))
        return float(self.mask * entropy - (shown * (_x_log_x(right) + other_tokens)).sum())


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.where(x > 0, x, 1.0))


class Masked(NamedTuple):
    """The predicted positions, ascending, with unused entries at the end; all arrays are [R, P]."""

    positions: np.ndarray  # int32, 0 where unused
    ids: np.ndarray  # int32, the original tokens, 0 where unused
    weights: np.ndarray  # float32, 1 or 0


class Masker:
    """Masks tokens of whole batches.

    Args:
      mask_id: the id of [MASK].
      ordinary: bool [V], False for special tokens, which are never masked or put in.
      continues_word: bool [V], True for pieces inside a word; needed for whole words.
      word_links: uint8 [2, V], which pieces can be neighbours in a word, or None
        (`bertjax.text.tokenizer.Tokenizer`).
    """

    def __init__(
        self,
        rule: MaskingRule,
        *,
        mask_id: int,
        ordinary: np.ndarray,
        continues_word: np.ndarray,
        word_links: np.ndarray | None = None,
    ):
        self._rule, self._mask_id, self._ordinary = rule, mask_id, ordinary
        self._continues_word, self._word_links = continues_word, word_links
        self._replacements = np.flatnonzero(ordinary).astype(np.int32)

    def mask(self, ids: np.ndarray, lengths: np.ndarray, draws: Draws, index: np.ndarray) -> Masked:
        """Masks tokens in `ids`, in place, and returns what to predict.

        Args:
          ids: int32 [R, S], with [CLS], [SEP] and padding.
          lengths: int64 [R], the tokens of each row, including the special ones.
          index: the examples' indices [R].
        """
        rows, length = ids.shape
        width = self._rule.width(length)
        maskable = self._ordinary.take(ids)  # twice as fast as indexing
        # A fractional count is rounded up or down at random, so that the expected share is exactly
        # the rate. As in the reference, at least one token is predicted.
        expected = lengths * self._rule.rates(draws, index)
        count = np.floor(expected + draws.uniform("count", index)).astype(np.int64)
        size = maskable.sum(1)
        count = np.minimum(np.clip(count, 1, width), size)

        # Sorting these numbers gives a random order of the positions: the high bits are random, and
        # the low bits are the position. The last position is never maskable, so no number equals
        # _NEVER by chance.
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

    def _share_in_words(
        self, order: np.ndarray, ids: np.ndarray, maskable: np.ndarray
    ) -> np.ndarray:
        """Gives all pieces of a word the random number of its first piece."""
        continues = inside_words(ids, maskable, self._continues_word, self._word_links)
        place = np.arange(ids.size, dtype=np.int32).reshape(ids.shape)
        first = np.maximum.accumulate(np.where(continues, 0, place).ravel())
        return order.take(first).reshape(order.shape)

    def _replace(self, original: np.ndarray, draws: Draws, index: np.ndarray) -> np.ndarray:
        """Chooses replacements: by default 80 % [MASK], 10 % random, 10 % the token itself."""
        width = original.shape[1]
        bits = draws.bits(2 * width, "replacement", index)
        chance, which = bits[:, :width] * 2.0**-32, bits[:, width:]
        rule, choices = self._rule, self._replacements
        random = choices[((which.astype(np.uint64) * np.uint64(len(choices))) >> np.uint64(32))]
        kept_or_random = np.where(chance < rule.mask + rule.random, random, original)
        return np.where(chance < rule.mask, self._mask_id, kept_or_random)


def inside_words(
    ids: np.ndarray,
    maskable: np.ndarray,
    continues_word: np.ndarray,
    word_links: np.ndarray | None,
) -> np.ndarray:
    """Whether each token of `ids` continues the word of the token before it, bool [R, S]."""
    continues = continues_word.take(ids) & maskable
    continues[:, 1:] &= maskable[:, :-1]
    if word_links is not None:
        into, out_of = word_links
        continues[:, 1:] &= (into.take(ids[:, 1:]) & out_of.take(ids[:, :-1])) != 0
    continues[:, 0] = False
    return continues


def _whole_words(
    words: np.ndarray, size: np.ndarray, count: np.ndarray, first: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses `count` [R] tokens as whole words: their places [R, W], and which are chosen."""
    # The tokens are a circle, with their words in random order. A word is chosen if it begins
    # within `count` places after the random place `first`: so each word has the same chance. Words
    # of one piece are added or removed to reach `count`; without enough, the last word goes.
    # One more column at each side shows whether words end at the borders.
    column = np.arange(-1, width + 1, dtype=np.int32)
    size, count, first = (each.astype(np.int32)[:, None] for each in (size, count, first))
    places = (first + column) % np.maximum(size, 1)
    flat = places + np.arange(len(words))[:, None] * words.shape[1]
    found = words.take(flat)
    begins = (found[:, 1:] != found[:, :-1]) | (places[:, 1:] == 0)
    single = begins[:, :-1] & begins[:, 1:]
    begins, column, flat = begins[:, :-1], column[1:-1], flat[:, 1:-1]
    # The tokens before `start` belong to a word that begins before the random position.
    start = np.where(begins, column, width).min(1, keepdims=True)
    stop = np.minimum(start + size, width)
    single &= column < stop
    early = column < count
    last = np.where(begins & early, column, -1).max(1, keepdims=True)
    following = np.where(begins & ~early, column, stop).min(1, keepdims=True)

    def evened(rows: slice | np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        taken = (column >= start[rows]) & (column < stop)
        surplus = np.maximum(stop - start[rows], 0) - count[rows]
        changed = single[rows] & (taken == (surplus > 0))
        rank = np.cumsum(changed, axis=1, dtype=np.int32)
        return taken ^ (changed & (rank <= np.abs(surplus))), rank[:, -1] >= surplus[:, 0]

    taken, enough = evened(slice(None), np.where(last < 0, 0, np.minimum(following, stop)))
    few = np.flatnonzero(~enough)
    taken[few], _ = evened(few, last[few])
    return flat, taken
