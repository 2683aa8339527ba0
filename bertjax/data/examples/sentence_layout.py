"""Rows of whole sentences (RoBERTa, arXiv 1907.11692, section 4.2, Table 2).

The sentences of a source are cut into rows once, each filled until the next sentence does not fit
(as fairseq does with --sample-break-mode=complete). Every epoch shows these rows in another order.
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
class SentenceLayout:
    """Rows of one text each ([CLS] sentence sentence ... [SEP]), and padding.

    Attributes:
      crosses_documents: True is FULL-SENTENCES: a row goes on with the next document after a
        separator. False is DOC-SENTENCES: the last row of a document may be short.
    """

    crosses_documents: bool
    fields: ClassVar[Mapping[str, Field]] = TEXT
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = True

    def open(self, store: TokenStore, spec: RowSpec) -> "SentenceRows":
        return SentenceRows(store, spec, self.crosses_documents)


class SentenceRows:
    """The rows of a `SentenceLayout` over a store."""

    def __init__(self, store: TokenStore, spec: RowSpec, crosses_documents: bool):
        room = spec.length - spec.tokenizer.template.specials(pair=False)
        self._store, self._spec = store, spec
        self._mixture = mixture_of(store, spec.draws, room)
        starts, ends, counts = [], [], []
        for source in store.sources:
            documents = store.document_starts[
                source.first_document : source.last_document_exclusive + 1
            ]
            sentences = _sentence_starts(store, documents, room)
            first, last = _rows(sentences, documents, room, crosses_documents)
            starts.append(first)
            ends.append(last)
            counts.append(len(first))
        self._starts, self._ends = np.concatenate(starts), np.concatenate(ends)
        self._first_row = np.concatenate([[0], np.cumsum(counts)])  # [sources + 1]

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        source, rank = self._mixture.locate(index)
        first = self._first_row[source]
        count = self._first_row[source + 1] - first
        epoch, turn = np.divmod(rank, count)
        row = first + permute(turn, count, self._spec.draws.keys("order of rows", source, epoch))
        start, end = self._starts[row], self._ends[row]
        document, last = self._document(start), self._document(end - 1)
        tokenizer, template = self._spec.tokenizer, self._spec.tokenizer.template
        text_length = end - start + (last - document)
        lengths = text_length + template.specials(pair=False)
        inside = np.arange(self._spec.length) < lengths[:, None]
        # The text has no token between documents; these places keep the separator.
        ids = np.where(inside, tokenizer.sep_id, tokenizer.pad_id).astype(np.int32)
        begins = np.arange(len(index)) * self._spec.length
        text = template.write(ids.reshape(-1), begins, text_length).a
        # A store reads no span across the end of a document.
        count = last - document + 1
        of_row, piece = np.repeat(np.arange(len(index)), count), ragged_arange(document, count)
        bounds = self._store.document_starts
        begin = np.maximum(start[of_row], bounds[piece])
        size = np.minimum(end[of_row], bounds[piece + 1]) - begin
        places = text[of_row] + begin - start[of_row] + piece - document[of_row]
        places = ragged_arange(places, size)
        ids.reshape(-1)[places] = self._store.read_spans(begin, size)
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": np.zeros_like(ids),
        }
        return LaidOut(arrays, lengths, row, epoch)

    def _document(self, token: np.ndarray) -> np.ndarray:
        """The number of the document that each token is in."""
        return np.searchsorted(self._store.document_starts, token, side="right") - 1


def _sentence_starts(store: TokenStore, documents: np.ndarray, room: int) -> np.ndarray:
    """The begins of sentences; one that is longer than `room` is cut into pieces."""
    every = store.sentence_starts
    first, last = np.searchsorted(every, documents[[0, -1]])
    starts = every[first:last]
    pieces = -(-np.diff(np.append(starts, documents[-1])) // room)
    return np.repeat(starts, pieces) + room * ragged_arange(0 * pieces, pieces)


def _rows(
    sentences: np.ndarray, documents: np.ndarray, room: int, crosses_documents: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The first token of each row, and the end of its last sentence: int64 [rows]."""
    document = np.searchsorted(documents, sentences, side="right") - 1
    ends = np.append(sentences[1:], documents[-1])
    # In these coordinates, a separator stands between two documents.
    following = np.searchsorted(ends + document, sentences + document + room, side="right")
    if not crosses_documents:
        bounds = np.searchsorted(sentences, documents[1:])  # the first sentence after each
        following = np.minimum(following, bounds[document])
    chain, number, jump = [], 0, following.tolist()
    while number < len(jump):
        chain.append(number)
        number = jump[number]
    first = np.array(chain)
    return sentences[first], ends[following[first] - 1]


FULL_SENTENCES = SentenceLayout(crosses_documents=True)
DOC_SENTENCES = SentenceLayout(crosses_documents=False)
