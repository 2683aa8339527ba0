"""How the text of an example is laid out in its sequence, before any of it is corrupted."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from bertjax.base.fields import INPUT, Field
from bertjax.corpus.store import TokenStore
from bertjax.examples.draws import Draws
from bertjax.examples.spans import Spans, SpanSampler
from bertjax.text.tokenizer import Tokenizer


class LaidOut(NamedTuple):
    """R rows of whole text.

    Attributes:
      arrays: those of the layout's fields; `input_ids` [R, S] may be changed in place.
      lengths: int64 [R], tokens of each row, special ones counted.
    """

    arrays: dict[str, np.ndarray]
    lengths: np.ndarray


class Layout(Protocol):
    """A way to put text into sequences.

    There is one for spans, and one for packed documents (`bertjax.examples.packed_layout`). Full
    sentences across documents would be another class; arrays that only it has are fields of it.

    Attributes:
      fields: the arrays that it makes: `bertjax.base.fields.INPUT`, and what comes with the text,
        such as labels.
      has_short_rows: whether examples may have a random shorter length.
    """

    fields: Mapping[str, Field]
    has_short_rows: bool

    def open(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        *,
        length: int,
        draws: Draws,
        short_probability: float,
    ) -> Callable[[np.ndarray], LaidOut]:
        """The text of a store: the indices of examples, int64 [R], -> their rows.

        Args:
          length: S.
          draws: the stream's random numbers.
          short_probability: share of examples of a random shorter length; 0 where the layout has
            none.

        Raises:
          InputError: the store cannot give such text.
        """


@dataclasses.dataclass(frozen=True)
class SpanLayout:
    """[CLS] A [SEP] [PAD]..., or [CLS] A [SEP] B [SEP] [PAD]... in pairs.

    Attributes:
      pairs: B follows A, or is of another document; the label says which.
    """

    pairs: bool
    has_short_rows: ClassVar[bool] = True

    @property
    def fields(self) -> dict[str, Field]:
        """See `Layout`."""
        if not self.pairs:
            return INPUT
        return INPUT | {"next_sentence_labels": Field("B", "int32")}  # 0: B follows A; 1: random

    def open(self, store, tokenizer, *, length, draws, short_probability) -> "SpanRows":
        """See `Layout`."""
        specials = 3 if self.pairs else 2
        sampler = SpanSampler(
            store,
            room=length - specials,
            draws=draws,
            pairs=self.pairs,
            short_probability=short_probability,
        )
        return SpanRows(self, store, tokenizer, length, specials, sampler)


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The rows of a `SpanLayout` over a store."""

    layout: SpanLayout
    store: TokenStore
    tokenizer: Tokenizer
    length: int
    specials: int
    sampler: SpanSampler

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        spans = self.sampler.spans(index)
        ids, lengths = self._placed(spans)
        column = np.arange(self.length, dtype=np.int32)
        second = spans.a_length.astype(np.int32)[:, None] + 2  # where B begins
        inside = column < lengths.astype(np.int32)[:, None]
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": (inside & (column >= second)).astype(np.int32),
        }
        if self.layout.pairs:
            arrays["next_sentence_labels"] = spans.is_random.astype(np.int32)
        return LaidOut(arrays, lengths)

    def _placed(self, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
        """The token ids [R, S], and the lengths [R]."""
        tokenizer, rows = self.tokenizer, np.arange(len(spans.a_start))
        ids = np.full((len(rows), self.length), tokenizer.pad_id, np.int32)
        lengths = spans.a_length + spans.b_length + self.specials
        ids[:, 0] = tokenizer.cls_id
        ids[rows, spans.a_length + 1] = tokenizer.sep_id
        ids[rows, lengths - 1] = tokenizer.sep_id

        starts = np.stack([spans.a_start, spans.b_start], 1).ravel()
        counts = np.stack([spans.a_length, spans.b_length], 1).ravel()
        row_start = rows * self.length
        places = np.stack([row_start + 1, row_start + 2 + spans.a_length], 1).ravel()
        ids.reshape(-1)[ragged_arange(places, counts)] = self.store.read_spans(starts, counts)
        return ids, lengths


SINGLE_SPANS = SpanLayout(pairs=False)
PAIRS = SpanLayout(pairs=True)


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """arange(starts[i], starts[i] + lengths[i]) for each i, one after the other; int64."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
