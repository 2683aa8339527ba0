"""Rows that go on from batch to batch, which of their tokens are predicted, and in which order."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.permutation import spans
from bertjax.data.examples.stream_layout import Stream
from bertjax.objectives.permutation import PermutationLM
from bertjax.text.template import Template
from tests.data.examples.places import CLS, FIRST, SEP

LENGTH, REUSE, ROWS = 53, 23, 7
ROOM = LENGTH - 2
OBJECTIVE = PermutationLM(reuse=REUSE, memory=11, one_in=5)


@pytest.fixture
def cls_last(corpus, long_documents, monkeypatch):
    """Both corpora with XLNet's template."""
    for each in (corpus, long_documents):
        monkeypatch.setattr(each.tokenizer, "template", Template((), (SEP,), (SEP, CLS), 1, 2))


def _examples(corpus, objective=OBJECTIVE, length=LENGTH, **more):
    return corpus.examples(length, objective=objective, **dict(batch_size=ROWS) | more)


def test_each_row_goes_on_where_it_was(cls_last, corpus):
    examples = _examples(corpus)
    batches = [examples.batch(step)["input_ids"] for step in range(4)]
    for before, after in zip(batches, batches[1:], strict=False):
        np.testing.assert_array_equal(before[:, REUSE:ROOM], after[:, : ROOM - REUSE])
    for batch in batches:
        assert (batch[:, ROOM:] == [SEP, CLS]).all()
        places = np.where(batch == SEP, 0, batch - FIRST)
        documents = batch[:, :ROOM] == SEP
        gaps = np.diff(places[:, :ROOM])[~(documents[:, 1:] | documents[:, :-1])]
        assert (gaps == 1).all()
    one = examples.batch(0)
    assert (one["token_type_ids"] == np.where(np.arange(LENGTH) == LENGTH - 1, 2, 0)).all()
    assert one["input_mask"].all()
    # Five of the seven rows read the source of share 0.7.
    source = corpus.source(np.sort(batches[0][:, :ROOM], axis=1)[:, -1] - FIRST)
    assert source.tolist() == [0] * 5 + [1] * 2
    some = examples.batch(2, slice(3, 5))
    for name, rows in examples.batch(2).items():
        np.testing.assert_array_equal(some[name], rows[3:5])


def test_at_the_end_of_a_source_a_row_goes_on_at_its_beginning(cls_last, long_documents):
    examples = _examples(long_documents, split=HELDOUT)
    first = examples.batch(0)["input_ids"]
    stream = Stream(TokenStore.open(long_documents.folder, HELDOUT), SEP)
    count = (stream.size - ROOM) // REUSE + 1
    assert count > ROWS
    np.testing.assert_array_equal(examples.batch(count)["input_ids"], first)
    firsts = [examples.batch(step)["input_ids"][0, 0] for step in range(count)]
    assert len({*firsts}) == count
    orders = [examples.batch(step)["order"] for step in (0, count)]
    assert (orders[0] != orders[1]).mean() > 0.1


def _as_in_the_reference(order, predicted, special, whole):
    """perm_mask of a section (`_local_perm`); `order` is the permutation of its tokens."""
    size = len(order)
    hidden = np.zeros((size, size), bool)
    for i in range(size):
        for j in range(size):
            context = not (predicted[j] or special[j])  # all tokens see it
            own = -1 if not (predicted[i] or special[i]) else order[i]
            own += 0 if predicted[i] else 1  # a predicted token does not see itself
            hidden[i, j] = not context and own <= order[j]
    return np.pad(hidden, whole)


def test_masks_are_those_of_the_reference(cls_last, long_documents):
    batch = _examples(long_documents).batch(3)
    for row in range(ROWS):
        ids, order = batch["input_ids"][row], batch["order"][row]
        predicted = np.zeros(LENGTH, bool)
        predicted[batch["masked_lm_positions"][row]] = True
        wanted = np.zeros((LENGTH, LENGTH), bool)
        wanted[:REUSE, REUSE:] = True  # the first section does not see the second
        for section, base in ((slice(REUSE), 1), (slice(REUSE, LENGTH), REUSE + 2)):
            rest = (section.start or 0, LENGTH - section.stop)
            special = np.isin(ids[section], [SEP, CLS])
            wanted |= _as_in_the_reference(
                order[section] - base, predicted[section], special, (rest, rest)
            )
        query = order[None, :] >= order[:, None]
        content = order[None, :] > order[:, None]
        np.testing.assert_array_equal(query[predicted], wanted[predicted])
        # In the content stream every token sees itself.
        np.testing.assert_array_equal(content, wanted & ~np.eye(LENGTH, dtype=bool))


def test_what_is_predicted(cls_last, long_documents):
    examples = _examples(long_documents)
    batches = [examples.batch(step) for step in range(40)]
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    goal = LENGTH // 5
    assert examples.spec.predicted == goal == rows["masked_lm_weights"].shape[1]
    assert rows["masked_lm_weights"].all()
    places = rows["masked_lm_positions"]
    assert (np.diff(places, axis=1) > 0).all()
    assert ((places < REUSE).sum(1) == goal * REUSE // LENGTH).all()
    predicted = np.take_along_axis(rows["input_ids"], places, 1)
    np.testing.assert_array_equal(predicted, rows["masked_lm_ids"])
    assert (predicted >= FIRST).all()
    # An order is a permutation in each section; its numbers are even over all predicted tokens.
    numbers = np.take_along_axis(rows["order"], places, 1)
    in_first = places < REUSE
    assert (1 <= numbers[in_first]).all() and (numbers[in_first] <= REUSE).all()
    assert (REUSE + 2 <= numbers[~in_first]).all() and (numbers[~in_first] <= LENGTH + 1).all()
    assert numbers[in_first].mean() == pytest.approx((1 + REUSE) / 2, rel=0.1)
    for order in rows["order"]:
        ranked = order[(order > 0) & (order != REUSE + 1)]
        assert len({*ranked}) == len(ranked)


def test_spans_are_those_of_the_reference():
    """Lengths in proportion to 1 / n, from the beginning of a word; the rest as single pieces."""
    rows, length = 400, 600
    rng = np.random.default_rng(4)
    begins = rng.random((rows, length)) < 0.6
    may = np.ones_like(begins)
    draw = lambda goal: spans(may, begins, goal, 6, Draws(1, "x"), np.arange(rows), 0)  # noqa: E731
    chosen = draw(40)
    assert (chosen.sum(1) == 40).all()
    edges = np.diff(np.pad(chosen.astype(int), [(0, 0), (1, 1)]))
    row, first = np.nonzero(edges == 1)
    last = np.nonzero(edges == -1)[1]
    assert begins[row, first].mean() > 0.99
    sizes = np.bincount(last - first, minlength=6)[1:6] / len(first)
    expected = 1 / np.arange(1, 6)
    np.testing.assert_allclose(sizes, expected / expected.sum(), atol=0.03)
    # The text between two spans is what one leaves After it, and the other before it.
    begins[:] = True
    edges = np.diff(np.pad(draw(40).astype(int), [(0, 0), (1, 1)]))
    row, first = np.nonzero(edges == 1)
    last = np.nonzero(edges == -1)[1]
    same = row[1:] == row[:-1]
    between, sizes = (first[1:] - last[:-1])[same], last - first
    room = 6 * (sizes[1:] + sizes[:-1])[same]
    assert (between < room).all()
    assert (between / room).mean() == pytest.approx(0.5, abs=0.02)
    begins[:] = rng.random((rows, length)) < 0.6
    # Spans of n stand in 6 n others: the text is used up before a seventh of it is chosen.
    many = draw(200)
    assert (many.sum(1) == 200).all()
    assert (many & ~begins).mean() > 0.05
    few = np.zeros_like(may)
    few[:, :3] = True
    assert (spans(few, begins & few, 40, 6, Draws(1, "x"), np.arange(rows), 0) == few).all()


@pytest.mark.parametrize(
    "settings, length, message",
    [
        ({"memory": LENGTH + 1}, LENGTH, "memory=54: must be at most the sequence length 53"),
        ({"reuse": ROOM}, LENGTH, r"reuse=51: must be less than 51, the tokens of text in a row"),
        ({}, 90_000, "tokens, less than the 89998 of a row: add text"),
    ],
)
def test_rows_that_are_refused(cls_last, corpus, settings, length, message):
    objective = PermutationLM(**dict(reuse=REUSE, memory=11) | settings)
    with pytest.raises(InputError, match=message):
        _examples(corpus, objective, length, split=HELDOUT)


def test_sources_and_vocabularies_that_are_refused(cls_last, corpus, monkeypatch):
    with pytest.raises(InputError, match="source 'b': its share is less than one of the 1 rows"):
        _examples(corpus, batch_size=1)
    monkeypatch.setattr(corpus.tokenizer, "template", Template((CLS,), (SEP,), (SEP,)))
    with pytest.raises(InputError, match="special tokens before the text.*--tokenizer=xlnet"):
        _examples(corpus)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"one_in": 1}, "one_in=1: must be at least 2"),
        ({"one_in": -6}, "one_in=-6: must be at least 2"),
        ({"reuse": 0}, "reuse=0: must be at least 1"),
        ({"memory": -1}, "memory=-1: must be at least 0"),
        ({"text": "spans"}, "text='spans': must be one of continued"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PermutationLM(**settings)


def test_a_row_of_which_nothing_is_predicted(cls_last, corpus):
    with pytest.raises(ValueError, match="one_in=40: no token of the first 23, or of the others"):
        _ = _examples(corpus, PermutationLM(reuse=REUSE, memory=0, one_in=40)).spec.predicted
