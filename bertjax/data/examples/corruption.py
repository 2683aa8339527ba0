"""How rows of text become inputs and targets: which tokens are masked, and what is predicted."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

import numpy as np

from bertjax.base.fields import ORDER, Field
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import LaidOut
from bertjax.data.examples.masking import Masker, MaskingRule
from bertjax.text.tokenizer import Tokenizer

Corrupt = Callable[[LaidOut, Draws, np.ndarray], dict[str, np.ndarray]]


class Corruption(Protocol):
    """A way to make inputs and targets of rows of text."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays that it adds to a batch."""

    @property
    def has_fixed_masks(self) -> bool:
        """Whether later epochs change a row in the same ways again."""

    def predicted(self, length: int) -> int:
        """P, the places of a sequence of `length` tokens where tokens are predicted."""

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        """Returns a function for a tokenizer: (rows, draws, index [R]) -> the arrays of `fields`.

        It changes the rows' `input_ids` in place. `index` has the examples' indices in the stream.
        """


@dataclasses.dataclass(frozen=True)
class MaskedTokens:
    """Tokens or whole words are masked by a rule, and are predicted (section 3.1)."""

    rule: MaskingRule
    fields: ClassVar[Mapping[str, Field]] = {
        "masked_lm_positions": Field("BP", "int32"),  # ascending; 0 where the weight is 0
        "masked_lm_ids": Field("BP", "int32"),  # the original tokens; 0 where the weight is 0
        "masked_lm_weights": Field("BP", "float32"),  # 1, or 0 on unused places
    }

    @property
    def has_fixed_masks(self) -> bool:
        return self.rule.copies > 0

    def predicted(self, length: int) -> int:
        return self.rule.width(length)

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        masker = Masker(
            self.rule,
            mask_id=tokenizer.mask_id,
            ordinary=tokenizer.ordinary,
            continues_word=tokenizer.continues_word,
            word_links=tokenizer.word_links,
        )

        def corrupted(rows: LaidOut, draws: Draws, index: np.ndarray) -> dict[str, np.ndarray]:
            if self.has_fixed_masks:
                assert rows.row is not None and rows.epoch is not None  # `ExampleSpec` checks it
                index = rows.row * self.rule.copies + rows.epoch % self.rule.copies
            masked = masker.mask(rows.arrays["input_ids"], rows.lengths, draws, index)
            return {
                "masked_lm_positions": masked.positions,
                "masked_lm_ids": masked.ids,
                "masked_lm_weights": masked.weights,
            }

        return corrupted


@dataclasses.dataclass(frozen=True)
class HiddenTokens(MaskedTokens):
    """`MaskedTokens` that a model does not see where it predicts them, if it reads in any order."""

    fields: ClassVar[Mapping[str, Field]] = {**MaskedTokens.fields, **ORDER}

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        masked = super().open(tokenizer)

        def corrupted(rows: LaidOut, draws: Draws, index: np.ndarray) -> dict[str, np.ndarray]:
            arrays = masked(rows, draws, index)
            order = np.zeros_like(rows.arrays["input_ids"])
            row, place = np.nonzero(arrays["masked_lm_weights"])
            order[row, arrays["masked_lm_positions"][row, place]] = 1
            return arrays | {"order": order}

        return corrupted


@dataclasses.dataclass(frozen=True)
class NextTokens:
    """Every token is predicted from those before it in its document (Table 5, "LTR")."""

    has_fixed_masks: ClassVar[bool] = False
    fields: ClassVar[Mapping[str, Field]] = {
        "target_ids": Field("BS", "int32"),  # the next token; 0 where the weight is 0
        "target_weights": Field("BS", "float32"),
    }

    def predicted(self, length: int) -> int:
        return length

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        del tokenizer
        return self._targets

    def _targets(self, rows: LaidOut, draws: Draws, index: np.ndarray) -> dict[str, np.ndarray]:
        del draws, index
        ids = rows.arrays["input_ids"]
        # Without packing, a row is one document.
        segment_ids = rows.arrays.get("segment_ids", rows.arrays["input_mask"])
        following = np.zeros(ids.shape, bool)
        following[:, :-1] = segment_ids[:, 1:] == segment_ids[:, :-1]
        following[:, :-1] &= segment_ids[:, 1:] > 0
        target = np.where(following, np.roll(ids, -1, axis=1), 0)
        return {"target_ids": target, "target_weights": following.astype(np.float32)}


@dataclasses.dataclass(frozen=True)
class Unchanged:
    """Nothing is masked, and the layout itself says what is predicted, at every place."""

    has_fixed_masks: ClassVar[bool] = False
    fields: ClassVar[Mapping[str, Field]] = {}

    def predicted(self, length: int) -> int:
        return length

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        del tokenizer
        return lambda rows, draws, index: {}


@dataclasses.dataclass(frozen=True)
class MaskedInSomeRows:
    """Tokens are masked in some rows of each group; in the others, every next token is predicted.

    Attributes:
      rule: of the masks.
      causal_rows: so many rows of a group, the first ones, stay as they are.
      group: the rows of a group.
      microbatches: of a batch. Each has every n-th row of it (`bertjax.training.step.split_rows`).
    """

    rule: MaskingRule
    causal_rows: int
    group: int
    microbatches: int

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**MaskedTokens.fields, **NextTokens.fields}

    @property
    def has_fixed_masks(self) -> bool:
        return MaskedTokens(self.rule).has_fixed_masks

    def predicted(self, length: int) -> int:
        """See `Corruption`; in a row with masked tokens."""
        return self.rule.width(length)

    def open(self, tokenizer: Tokenizer) -> Corrupt:
        masked, following = MaskedTokens(self.rule).open(tokenizer), NextTokens().open(tokenizer)

        def corrupted(rows: LaidOut, draws: Draws, index: np.ndarray) -> dict[str, np.ndarray]:
            causal = index // self.microbatches % self.group < self.causal_rows
            ids = rows.arrays["input_ids"]
            whole = ids.copy()
            arrays = following(rows, draws, index) | masked(rows, draws, index)
            ids[causal] = whole[causal]
            arrays["masked_lm_weights"][causal] = 0
            arrays["target_weights"][~causal] = 0
            return arrays

        return corrupted
