"""(seed, step, rows) -> one batch of arrays, all rows at once."""

import dataclasses

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.limits import require
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.corruption import Corruption
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import RowSpec, TextLayout
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """The settings of one stream of examples.

    Attributes:
      layout: how text is laid out.
      corruption: how it becomes inputs and targets.
      length: S, [CLS], [SEP] and padding included.
      batch_size: sequences of one step, over all hosts.
      seed, stream: they select the random numbers; the phases and the held-out batches of a run
        differ in `stream`.
      short_probability: the share of examples that have a random shorter length.
    """

    layout: TextLayout
    corruption: Corruption
    length: int
    batch_size: int
    seed: int
    stream: str
    short_probability: float = 0.1

    def __post_init__(self):
        full = (
            "must be 0, because the rows of this layout of text are full (packed documents, whole "
            "sentences)"
        )
        fits = not self.short_probability or self.layout.has_short_rows
        require(fits, self, "short_probability", full)
        if self.corruption.has_fixed_masks and not self.layout.has_fixed_rows:
            raise ValueError(
                "masking copies: must be 0, because this layout of text has other rows in each "
                "epoch: set it to 0, or objective.text to 'full_sentences' or 'doc_sentences'"
            )

    @property
    def predicted(self) -> int:
        """P, places for predicted tokens in each sequence."""
        return self.corruption.predicted(self.length)


class Examples:
    """The batches of one stream over a token store that this tokenizer made."""

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, spec: ExampleSpec):
        if store.tokenizer_identity != tokenizer.identity:
            raise InputError("the token store was built with another tokenizer than the one given")
        self.spec = spec
        self._draws = Draws(spec.seed, spec.stream)
        rows = RowSpec(tokenizer, spec.length, self._draws, spec.batch_size, spec.short_probability)
        self._lay_out = spec.layout.open(store, rows)
        self._corrupt = spec.corruption.open(tokenizer)

    def batch(self, step: int, rows: slice | None = None) -> dict[str, np.ndarray]:
        """The arrays of the layout's and the corruption's fields, for rows of one step's batch.

        Steps count from 0 in this stream. A row does not depend on which others are made with it.
        """
        made = range(self.spec.batch_size)[rows or slice(None)]
        index = step * self.spec.batch_size + np.arange(made.start, made.stop)
        text = self._lay_out(index)
        return text.arrays | self._corrupt(text, self._draws, index)
