"""The order in which the tokens of a row are predicted, and which of them (XLNet, section 2.3)."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bertjax.base.fields import ORDER, Field
from bertjax.data.examples.corruption import Corrupt, MaskedTokens
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import LaidOut
from bertjax.text.tokenizer import Tokenizer

_LONGEST = 5  # pieces of a span; a span of n is drawn with a probability in proportion to 1 / n


@dataclasses.dataclass(frozen=True)
class PermutedTokens:
    """One of `one_in` tokens is predicted; the text stays as it is.

    A row has two sections: the tokens that the model will remember, and those after them. Each has
    its own order, and the first does not see the second. In the order of a section, the tokens
    that are not predicted come first and together; then the others and the special tokens, which
    are never predicted, one after the other (data_utils.py of zihangdai/xlnet, `_local_perm`).

    Attributes:
      one_in: K of the paper.
      reuse: the tokens of the first section.
    """

    one_in: int
    reuse: int
    has_fixed_masks: ClassVar[bool] = False
    fields: ClassVar[Mapping[str, Field]] = {
        **ORDER,
        **MaskedTokens.fields,
    }

    def predicted(self, length: int) -> int:
        """The predicted tokens of a row; raises ValueError if a section would have none."""
        first, second = self._goals(length)
        if not (first and second):
            raise ValueError(
                f"objective.one_in={self.one_in}: no token of the first {self.reuse}, or of the "
                f"others, would be predicted in a row of {length}: set it lower (the paper: 6)"
            )
        return first + second

    def _goals(self, length: int) -> tuple[int, int]:
        """How many tokens of each section are predicted."""
        total = length // self.one_in
        first = min(total, total * self.reuse // length)
        return first, total - first

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        ordinary, begins = tokenizer.ordinary, ~tokenizer.continues_word

        def permuted(rows: LaidOut, draws: Draws, index: np.ndarray) -> dict[str, np.ndarray]:
            ids = rows.arrays["input_ids"]
            length = ids.shape[1]
            predicted, order = np.zeros(ids.shape, bool), np.zeros(ids.shape, np.int32)
            both = slice(self.reuse), slice(self.reuse, length)
            for number, (section, goal) in enumerate(zip(both, self._goals(length), strict=True)):
                may = ordinary[ids[:, section]]
                begin = may & begins[ids[:, section]]
                chosen = spans(may, begin, goal, self.one_in, draws, index, number)
                place = _ranks(draws.bits(length, f"order {number}", index)[:, section])
                before = number and 1 + self.reuse  # all of the first section
                predicted[:, section] = chosen
                order[:, section] = before + np.where(chosen | ~may, 1 + place, 0)
            positions = np.argsort(~predicted, axis=1, kind="stable")[:, : self.predicted(length)]
            used = np.take_along_axis(predicted, positions, axis=1)
            originals = np.take_along_axis(ids, positions, axis=1)
            return {
                "order": order,
                "masked_lm_positions": np.where(used, positions, 0).astype(np.int32),
                "masked_lm_ids": np.where(used, originals, 0),
                "masked_lm_weights": used.astype(np.float32),
            }

        return permuted


def spans(
    may: np.ndarray,
    begins: np.ndarray,
    goal: int,
    one_in: int,
    draws: Draws,
    index: np.ndarray,
    section: int,
) -> np.ndarray:
    """Chooses the predicted tokens, bool [R, S], as `_sample_mask` of zihangdai/xlnet does.

    A span has n = 1 to 5 pieces and stands at a random place in n * `one_in` others; it begins with
    a word. When the text is used up, single pieces are added.

    Args:
      may: bool [R, S], False for tokens that are never predicted.
      begins: bool [R, S], where a word begins.
      goal: how many are chosen in each row, if so many may be.
      section: its number, an index of the draws next to the examples' `index` [R].
    """
    rows, length = may.shape
    row, columns = np.arange(rows), np.arange(length)
    following = np.where(begins, columns, length)[:, ::-1]
    following = np.minimum.accumulate(following, axis=1)[:, ::-1]
    following = np.pad(following, [(0, 0), (0, 1)], constant_values=length)
    allowed = np.pad(np.cumsum(may, axis=1), [(0, 0), (1, 0)])
    share = np.cumsum(1 / np.arange(1, _LONGEST + 1))
    edges = np.zeros((rows, length + 1), np.int64)
    count, place, going = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows, bool)
    turn = 0
    while going.any():
        which = np.asarray(section), np.asarray(turn)
        drawn = draws.uniform("size of a span", index, *which) * share[-1]
        size = np.minimum(1 + np.searchsorted(share, drawn), np.maximum(goal - count, 1))
        before = draws.below(size * one_in, "place of a span", index, *which)
        first = following[row, np.minimum(place + before, length)]
        last = first + size
        going &= (count < goal) & (last < length)
        np.add.at(edges, (row[going], first[going]), 1)
        np.add.at(edges, (row[going], last[going]), -1)
        inside = allowed[row, np.minimum(last, length)] - allowed[row, np.minimum(first, length)]
        count += np.where(going, inside, 0)
        place = last + size * one_in - before
        turn += 1
    chosen = (np.cumsum(edges, axis=1)[:, :-1] > 0) & may
    # The rest, as single pieces in a random order.
    bits = draws.bits(length, f"single pieces {section}", index).astype(np.int64)
    rank = _ranks(np.where(chosen | ~may, 1 << 32, bits))
    return chosen | (may & (rank < (goal - count)[:, None]))


def _ranks(keys: np.ndarray) -> np.ndarray:
    """The place of each element in the order of its row, from 0: [R, S] -> int64 [R, S]."""
    order = np.argsort(keys, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(keys.shape[1])[None], axis=1)
    return ranks
