"""Batches of texts that belong together: by the step alone, each example once an epoch."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from bertjax.tasks.similarity.batches import LENGTHS, Batches, JoinedBatches, Mixed, Tokens
from bertjax.tasks.similarity.examples import Examples
from bertjax.text.prompted import PromptedText
from bertjax.text.template import Template

PLAIN = Examples("a", np.arange(10, 27), np.arange(50, 84).reshape(17, 2))
SCORED = Examples("b", np.arange(30, 35), np.arange(60, 65)[:, None], np.ones((5, 1), np.float32))
LABELLED = Examples(
    "c",
    np.array([0, 1, 2, 3, 4, 5, 6]),
    np.zeros((7, 0), np.int32),
    labels=np.array([0, 1, 0, 1, 0, 1, 2 - 2]),
)
TEXTS, B = 90, 6


def _mixed(sources, shares, **more):
    return Mixed(sources, shares, TEXTS, **(dict(batch_size=B, seed=3, apart=False) | more))


def test_each_example_once_an_epoch():
    """The epochs have other orders, and rows can be made alone."""
    mixed = _mixed([PLAIN], [1.0])
    rows = [mixed.batch(number, slice(0, B)) for number in range(17)]  # six epochs
    query = np.concatenate([each.query for each in rows])
    epochs = [query[i : i + 17] for i in range(0, len(query), 17)]
    assert all(sorted(epoch) == list(range(10, 27)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    own = rows[3]
    np.testing.assert_array_equal(own.passage, PLAIN.passage[own.query - 10])
    rows = mixed.batch(3, slice(2, 5))
    for name, array in vars(rows).items():
        np.testing.assert_array_equal(array, getattr(own, name)[2:5])


def test_sources_have_their_shares():
    mixed = _mixed([PLAIN, SCORED], [0.75, 0.25], batch_size=512)
    for number in range(3):
        found = mixed.all_rows(number)
        assert abs(np.mean(found.query >= 30) - 0.25) < 0.06
        other = found.query >= 30
        assert (found.passage[other, 1] == -1).all() and (found.passage[~other, 1] >= 0).all()
        assert found.scores[other, 0].all() and not found.scores[~other].any()
    whole = np.concatenate([mixed.all_rows(number).query for number in range(8)])
    assert np.mean(whole >= 30) == 0.25  # 4,096 examples


def test_one_source_a_batch():
    mixed = _mixed([PLAIN, SCORED], [0.5, 0.5], apart=True)
    kinds = [set((mixed.all_rows(number).query >= 30).tolist()) for number in range(64)]
    assert all(len(kind) == 1 for kind in kinds)
    assert 20 < sum(True in kind for kind in kinds) < 44
    firsts = np.concatenate(
        [mixed.all_rows(n).query for n, kind in enumerate(kinds) if kind == {False}]
    )[:17]
    assert sorted(firsts) == list(range(10, 27))


def test_texts_with_the_same_label():
    """Another text of the label each epoch, and all of a label count as one text."""
    mixed = _mixed([LABELLED, PLAIN], [0.5, 0.5])
    label = dict(zip(LABELLED.query.tolist(), LABELLED.labels.tolist(), strict=True))
    partners = Counter()
    for number in range(200):
        found = mixed.all_rows(number)
        for query, passage, a, b in zip(
            *(found.query, found.passage[:, 0], found.query_key, found.passage_key[:, 0]),
            strict=True,
        ):
            if query < 10:
                assert passage != query and label[passage] == label[query]
                assert a == b == TEXTS + label[query]
                partners[query, passage] += 1
            else:
                assert (a, b) == (query, passage)
    assert len(partners) == 4 * 3 + 3 * 2  # every pair of a label comes
    assert max(partners.values()) < 4 * min(partners.values())


def _text(number, size):
    ids = np.full(size, number)
    return PromptedText(ids, 0 * ids, (np.arange(size) > 0).astype(int))


SIZES = {number: 2 + number % 7 for number in range(TEXTS)}
TOKENS = Tokens([_text(n, s) for n, s in SIZES.items()], list(SIZES), empty=_text(99, 2))


@pytest.mark.parametrize("pad_to_longest", [False, True])
def test_arrays(pad_to_longest):
    """As long as the batch's longest text if snug; a passage that is not there is empty."""
    examples = Examples("d", PLAIN.query, np.where(PLAIN.passage == 51, -1, PLAIN.passage))
    mixed = _mixed([examples], [1.0])
    batches = Batches(
        mixed, TOKENS, TOKENS, lengths=(20, 33), pad_id=7, pad_to_longest=pad_to_longest
    )
    for number in range(4):
        whole, arrays = mixed.all_rows(number), batches.batch(number, slice(1, 4))
        assert arrays["query_input_ids"].shape == (3, 16 if pad_to_longest else 20)
        assert arrays["passage_input_ids"].shape == (3, 2, 16 if pad_to_longest else 33)
        texts = {"query_": whole.query[1:4], "passage_": whole.passage[1:4]}
        for begin, numbers in texts.items():
            for place, text in np.ndenumerate(numbers):
                size, fill = (SIZES[text], text) if text >= 0 else (2, 99)
                ids = arrays[begin + "input_ids"][place]
                assert (ids[:size] == fill).all() and (ids[size:] == 7).all()
                assert arrays[begin + "input_mask"][place].sum() == size
                counted = arrays[begin + "counted_mask"][place]
                assert counted[0] == 0 and counted.sum() == size - 1
        assert batches.tokens(number) == B * (16 + 2 * 16 if pad_to_longest else 20 + 2 * 33)


def test_hosts_with_rows_of_one_batch_have_arrays_of_one_length():
    """That of the longest text of the whole batch, also where the host has only short ones."""
    sizes = np.random.default_rng(0).choice([3, 11, 19, 29, 43], TEXTS)
    tokens = Tokens([_text(n, s) for n, s in enumerate(sizes)], range(TEXTS), empty=_text(99, 2))
    mixed = _mixed([PLAIN], [1.0])
    separate = Batches(mixed, tokens, tokens, lengths=(40, 40), pad_id=7, pad_to_longest=True)
    tokenizer = SimpleNamespace(template=Template((2,), (3,), (3,)), pad_id=7)
    ids = [[number] * size for number, size in enumerate(sizes)]
    joined = JoinedBatches(mixed, ids, tokenizer, length=90, pad_to_longest=True)
    alone = Counter()
    for number in range(17):
        whole = mixed.all_rows(number)
        pairs = sizes[whole.query][:, None] + sizes[whole.passage] + 3
        for batches, name, own in (
            (separate, "query_input_ids", sizes[whole.query]),
            (separate, "passage_input_ids", sizes[whole.passage]),
            (joined, "input_ids", pairs),
        ):
            most = 40 if batches is separate else 90
            wanted = min(most, next(length for length in LENGTHS if length >= own.max()))
            for rows in (slice(0, 2), slice(2, B)):
                array = batches.batch(number, rows)[name]
                assert array.shape == (*own[rows].shape, wanted)
                alone[name] += own[rows].max() < own.max()
        query, passage = separate.lengths(whole)
        assert separate.tokens(number) == B * query + 2 * B * passage
        assert (
            joined.tokens(number) == 2 * B * joined.batch(number, slice(1))["input_ids"].shape[-1]
        )
    assert len(alone) == 3 and min(alone.values()) > 5  # hosts whose own texts are shorter
