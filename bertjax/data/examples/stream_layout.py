"""Rows of a stream of text, as language models read it (GPT, GPT-2, Radford et al., 2018, 2019).

The documents of a source follow each other, and an end-of-text token comes after each. The stream
is cut into rows once. Every epoch shows these rows in another order.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bertjax.base.fields import TEXT, Field
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import permute
from bertjax.data.examples.layout import LaidOut, RowSpec, ragged_arange
from bertjax.data.examples.mixture import mixture_of


@dataclasses.dataclass(frozen=True)
class StreamLayout:
    """Full rows without [CLS] and [SEP], which begin and end anywhere; the last may be short.

    A row begins with the last token of the one before it, so each token of the stream but the first
    has a place where it is the next token.
    """

    fields: ClassVar[Mapping[str, Field]] = TEXT
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = True

    def open(self, store: TokenStore, spec: RowSpec) -> "StreamRows":
        return StreamRows(store, spec)


class StreamRows:
    """The rows of a `StreamLayout` over a store."""

    def __init__(self, store: TokenStore, spec: RowSpec):
        length, draws = spec.length, spec.draws
        self._stream = Stream(store, spec.tokenizer.end_id)
        self._pad_id, self._length, self._draws = spec.tokenizer.pad_id, length, draws
        self._mixture = mixture_of(store, draws, length)
        bounds = np.array([self._stream.bounds(number) for number in range(len(store.sources))])
        self._begin, self._end = bounds.T
        self._count = -(-(self._end - self._begin - 1) // (length - 1))
        self._first_row = np.cumsum(self._count) - self._count

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        source, rank = self._mixture.locate(index)
        count = self._count[source]
        epoch, turn = np.divmod(rank, count)
        number = permute(turn, count, self._draws.keys("order of rows", source, epoch))
        begin = self._begin[source] + number * (self._length - 1)
        lengths = np.minimum(self._length, self._end[source] - begin)
        inside = np.arange(self._length) < lengths[:, None]
        ids = np.full(inside.shape, self._pad_id, np.int32)
        ids[inside] = self._stream.read(begin, lengths)
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": np.zeros_like(ids),
        }
        return LaidOut(arrays, lengths, self._first_row[source] + number, epoch)


class Stream:
    """All documents of a store, one after the other, with the token `end_id` after each."""

    def __init__(self, store: TokenStore, end_id: int):
        self._store, self._end_id = store, end_id
        self._starts = store.document_starts + np.arange(len(store.document_starts))

    def bounds(self, source: int) -> tuple[int, int]:
        """The places where a source of the store begins and ends."""
        span = self._store.sources[source]
        first, end = self._starts[[span.first_document, span.last_document_exclusive]]
        return int(first), int(end)

    @property
    def size(self) -> int:
        """The tokens of the stream."""
        return int(self._starts[-1])

    def read(self, begin: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The tokens of R stretches, joined: int32 [sum(lengths)]; a length is at least 1."""
        end = begin + lengths
        first, last = (
            np.searchsorted(self._starts, place, side="right") - 1 for place in (begin, end - 1)
        )
        pieces = last - first + 1
        row, document = np.repeat(np.arange(len(begin)), pieces), ragged_arange(first, pieces)
        start = np.maximum(begin[row], self._starts[document])
        size = np.minimum(end[row], self._starts[document + 1] - 1) - start  # without the end
        ids = np.full(lengths.sum(), self._end_id, np.int32)
        into = (np.cumsum(lengths) - lengths)[row] + start - begin[row]
        ids[ragged_arange(into, size)] = self._store.read_spans(start - document, size)
        return ids


STREAM = StreamLayout()
