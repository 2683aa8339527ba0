"""How the text of an example is laid out in its sequence, before any of it is corrupted."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from bertjax.base.fields import TEXT, Field
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.spans import SpanSampler, TextSpans
from bertjax.text.tokenizer import Tokenizer


class LaidOut(NamedTuple):
    """R rows of whole text.

    Attributes:
      arrays: those of the layout's fields; `input_ids` [R, S] may be changed in place.
      lengths: int64 [R], tokens of each row, special ones counted.
      row: int64 [R], the number of each row of a layout with fixed rows; otherwise None.
      epoch: int64 [R], how often such a row was shown before; otherwise None.
    """

    arrays: dict[str, np.ndarray]
    lengths: np.ndarray
    row: np.ndarray | None = None
    epoch: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class RowSpec:
    """What the rows of one stream of examples need besides their text.

    Attributes:
      length: S.
      batch_size: the rows of a batch: row r of batch n has the index n * batch_size + r.
      short_probability: the share of examples that have a random shorter length; 0 unless the
        layout `has_short_rows`.
    """

    tokenizer: Tokenizer
    length: int
    draws: Draws
    batch_size: int
    short_probability: float = 0.0


class TextLayout(Protocol):
    """A way to put text into sequences."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays that it makes: `bertjax.base.fields.TEXT`, and others such as labels."""

    @property
    def has_short_rows(self) -> bool:
        """Whether examples may have a random shorter length."""

    @property
    def has_fixed_rows(self) -> bool:
        """Whether each epoch has the same rows."""

    def open(self, store: TokenStore, spec: RowSpec) -> Callable[[np.ndarray], LaidOut]:
        """Returns a function for the text of a store: indices, int64 [R] -> their rows."""


@dataclasses.dataclass(frozen=True)
class SpanLayout:
    """A span of text and padding, or a pair of spans and its label, in the tokenizer's template."""

    pairs: bool
    has_short_rows: ClassVar[bool] = True
    has_fixed_rows: ClassVar[bool] = False

    @property
    def fields(self) -> dict[str, Field]:
        if not self.pairs:
            return TEXT
        return TEXT | {"next_sentence_labels": Field("B", "int32")}  # 0: B follows A; 1: random

    def open(self, store: TokenStore, spec: RowSpec) -> "SpanRows":
        sampler = SpanSampler(
            store,
            room=spec.length - spec.tokenizer.template.specials(pair=self.pairs),
            draws=spec.draws,
            pairs=self.pairs,
            short_probability=spec.short_probability,
        )
        return SpanRows(self, store, spec.tokenizer, spec.length, sampler)


class Sampler(Protocol):
    """Finds the texts of any example of one stream, such as `SpanSampler`."""

    def spans(self, index: np.ndarray) -> TextSpans:
        """The spans of examples `index`, int64 [R]."""


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The rows of a `SpanLayout` over a store."""

    layout: SpanLayout
    store: TokenStore
    tokenizer: Tokenizer
    length: int
    sampler: Sampler

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        spans = self.sampler.spans(index)
        ids, second, lengths = self.placed(spans)
        inside = np.arange(self.length, dtype=np.int32) < lengths.astype(np.int32)[:, None]
        template = self.tokenizer.template
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": template.token_types(self.length, second, lengths),
        }
        if self.layout.pairs:
            arrays["next_sentence_labels"] = spans.is_random.astype(np.int32)
        return LaidOut(arrays, lengths)

    def placed(self, spans: TextSpans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The token ids [R, S], the start of B or the end (without B) [R], the lengths [R]."""
        rows = len(spans.a_start)
        ids = np.full((rows, self.length), self.tokenizer.pad_id, np.int32)
        flat, begin = ids.reshape(-1), np.arange(rows) * self.length
        b_length = spans.b_length if self.layout.pairs else None
        places = self.tokenizer.template.write(flat, begin, spans.a_length, b_length)

        starts = np.stack([spans.a_start, spans.b_start], 1).ravel()
        counts = np.stack([spans.a_length, spans.b_length], 1).ravel()
        into = np.stack([places.a, places.b], 1).ravel()
        flat[ragged_arange(into, counts)] = self.store.read_spans(starts, counts)
        return ids, places.b - begin, places.end - begin


SINGLE_SPANS = SpanLayout(pairs=False)
PAIRS = SpanLayout(pairs=True)


def ragged_arange(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """arange(starts[i], starts[i] + lengths[i]) for each i, one after the other; int64."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])
