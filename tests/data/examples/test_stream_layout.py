"""Rows of a stream: every token is the next one once an epoch, and documents are kept apart."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import RowSpec
from bertjax.data.examples.stream_layout import STREAM, Stream
from bertjax.objectives.left_to_right import LeftToRight
from tests.data.examples.places import FIRST, PAD, SEP, Corpus

LENGTH = 19
STREAMED = LeftToRight("stream")


def _stream_of_a_walk(corpus: Corpus, source: int) -> list[int]:
    """The ids of a source's documents, with a separator after each."""
    ids, store = [], corpus.store
    span = store.sources[source]
    for document in range(span.first_document, span.last_document_exclusive):
        start, end = store.document_starts[document : document + 2].tolist()
        ids += [FIRST + place for place in range(start, end)] + [SEP]
    return ids


@pytest.mark.parametrize("length", [LENGTH, 2, 300])
def test_the_rows_are_those_of_a_walk(short_documents, length):
    examples = short_documents.examples(length, objective=STREAMED)
    stream = _stream_of_a_walk(short_documents, 0)
    count = -(-(len(stream) - 1) // (length - 1))
    index = np.arange(count)
    laid = examples._lay_out(index)
    assert sorted(laid.row) == list(index) and list(laid.row) != list(index)
    for number, ids, size in zip(laid.row, laid.arrays["input_ids"], laid.lengths, strict=True):
        begin = number * (length - 1)
        assert ids[:size].tolist() == stream[begin : begin + length]
        assert (ids[size:] == PAD).all()
    made = examples._corrupt(laid, examples._draws, index)
    weights = made["target_weights"] > 0
    assert weights.sum() == len(stream) - 1
    targets = [made["target_ids"][row][weights[row]] for row in np.argsort(laid.row)]
    assert np.concatenate(targets).tolist() == stream[1:]
    assert (laid.arrays["input_mask"].sum(1) == laid.lengths).all()
    again = examples._lay_out(index + count)
    assert sorted(again.row) == sorted(laid.row) and list(again.row) != list(laid.row)


def test_sources_keep_their_rows_and_shares(corpus):
    examples = corpus.examples(LENGTH, objective=STREAMED)
    laid = examples._lay_out(np.arange(4096))
    streams = [_stream_of_a_walk(corpus, source) for source in range(2)]
    rows = [
        {tuple(stream[i : i + LENGTH]) for i in range(0, len(stream) - 1, LENGTH - 1)}
        for stream in streams
    ]
    found = [
        tuple(ids[:size]) for ids, size in zip(laid.arrays["input_ids"], laid.lengths, strict=True)
    ]
    assert np.mean([row in rows[0] for row in found]) == pytest.approx(0.7, abs=1e-3)
    assert all(row in rows[0] or row in rows[1] for row in found)


def test_stretches_of_a_stream(corpus):
    both = _stream_of_a_walk(corpus, 0) + _stream_of_a_walk(corpus, 1)
    stream = Stream(corpus.store, SEP)
    assert stream.size == len(both)
    begin = np.array([0, 5, len(both) - 7])
    lengths = np.array([len(both), 31, 7])
    expected = both + both[5:36] + both[-7:]
    assert stream.read(begin, lengths).tolist() == expected


def test_refused(corpus):
    with pytest.raises(InputError, match="the sequence length leaves room for 1 tokens"):
        STREAM.open(corpus.store, RowSpec(corpus.tokenizer, 1, Draws(0, "x"), batch_size=1))
