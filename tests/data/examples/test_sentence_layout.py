"""Rows of whole sentences: each once an epoch, full, and with separators between documents."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.corruption import MaskedTokens
from bertjax.data.examples.layout import SINGLE_SPANS, LaidOut
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.sentence_layout import DOC_SENTENCES, FULL_SENTENCES
from bertjax.objectives.masked_lm import MaskedLM
from tests.data.examples.places import CLS, FIRST, PAD, SEP, Corpus

LENGTH = 19
FULL, DOC = MaskedLM("full_sentences"), MaskedLM("doc_sentences")


def _epoch(corpus: Corpus, objective: MaskedLM, number: int = 0) -> tuple[Examples, LaidOut]:
    """All rows of one epoch, without masks."""
    examples = corpus.examples(LENGTH, objective=objective)
    count = len(examples._lay_out._starts)
    return examples, examples._lay_out(np.arange(number * count, (number + 1) * count))


def _rows_of_a_walk(corpus: Corpus, crosses_documents: bool) -> list[list[int]]:
    """The ids of all rows, by a walk over the sentences of the store, one after the other."""
    store, room = corpus.store, LENGTH - 2
    ends = np.append(store.sentence_starts[1:], store.document_starts[-1])
    rows, row, before = [], [], None
    for start, end in zip(store.sentence_starts.tolist(), ends.tolist(), strict=True):
        document = int(corpus.document(np.array(start)))
        for first in range(start, end, room):
            piece = [FIRST + place for place in range(first, min(first + room, end))]
            is_next = document != before and before is not None
            joined = row + [SEP] * is_next + piece
            if row and (len(joined) > room or (is_next and not crosses_documents)):
                rows.append(row)
                joined = piece
            row, before = joined, document
    return [[CLS, *each, SEP] for each in (*rows, row)]


@pytest.mark.parametrize("objective, crosses", [(FULL, True), (DOC, False)])
def test_the_rows_are_those_of_a_walk(short_documents, objective, crosses):
    _, laid = _epoch(short_documents, objective)
    assert sorted(laid.row) == list(range(len(laid.row)))
    expected = _rows_of_a_walk(short_documents, crosses)
    for number, ids, length in zip(laid.row, laid.arrays["input_ids"], laid.lengths, strict=True):
        assert ids[:length].tolist() == expected[number]
        assert (ids[length:] == PAD).all()
    column = np.arange(LENGTH)
    np.testing.assert_array_equal(laid.arrays["input_mask"], column < laid.lengths[:, None])
    assert not laid.arrays["token_type_ids"].any()


def test_sources_keep_their_rows_and_shares(corpus):
    examples = corpus.examples(LENGTH, objective=FULL)
    laid = examples._lay_out(np.arange(4096))
    ids = laid.arrays["input_ids"]
    first = corpus.source(np.maximum(ids[:, 1] - FIRST, 0))
    last = corpus.source(ids[np.arange(len(ids)), laid.lengths - 2] - FIRST)
    np.testing.assert_array_equal(first, last)
    assert (first == 0).mean() == pytest.approx(0.7, abs=1e-3)


def _masked(corpus: Corpus, copies: int, epoch: int) -> dict[int, bytes]:
    """The masked ids of each row in an epoch, by the row's number."""
    examples = corpus.examples(LENGTH, objective=FULL, masking=MaskingRule(copies=copies))
    count = len(examples._lay_out._starts)
    index = np.arange(epoch * count, (epoch + 1) * count)
    text = examples._lay_out(index)
    examples._corrupt(text, examples._draws, index)
    return {row: ids.tobytes() for row, ids in zip(text.row, text.arrays["input_ids"], strict=True)}


def _share_of_same(one: dict[int, bytes], other: dict[int, bytes]) -> float:
    return float(np.mean([ids == other[row] for row, ids in one.items()]))


def test_static_masks_come_again_after_so_many_epochs(short_documents):
    epochs = [_masked(short_documents, copies=3, epoch=number) for number in (0, 1, 3)]
    assert _share_of_same(epochs[0], epochs[1]) < 0.1
    assert _share_of_same(epochs[0], epochs[2]) == 1
    dynamic = [_masked(short_documents, copies=0, epoch=number) for number in (0, 3)]
    assert _share_of_same(*dynamic) < 0.1
    assert list(dynamic[0]) != list(dynamic[1])  # another order


def test_refused(corpus):
    with pytest.raises(InputError, match="leaves room for 1 tokens: at least 2"):
        corpus.examples(3, objective=FULL)
    masked = MaskedTokens(MaskingRule())
    with pytest.raises(ValueError, match="short_probability=0.1: must be 0"):
        ExampleSpec(DOC_SENTENCES, masked, LENGTH, 5, 0, "x", short_probability=0.1)
    static = MaskedTokens(MaskingRule(copies=10))
    with pytest.raises(ValueError, match="masking copies: must be 0, because this layout"):
        ExampleSpec(SINGLE_SPANS, static, LENGTH, 5, 0, "x")
    with pytest.raises(ValueError, match="copies=-1: must be at least 0"):
        MaskingRule(copies=-1)
    assert FULL_SENTENCES.has_fixed_rows and not SINGLE_SPANS.has_fixed_rows
