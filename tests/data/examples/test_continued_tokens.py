"""Rows of the stream that each begin with the last token of the row of the batch before."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.shards import HELDOUT
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.stream_layout import Stream
from bertjax.objectives.left_to_right import LeftToRight
from tests.data.examples.places import FIRST, SEP

LENGTH, ROWS = 53, 7
OBJECTIVE = LeftToRight("continued", memory=200)


def test_each_token_is_predicted_once_from_all_before_it(corpus):
    examples = corpus.examples(LENGTH, objective=OBJECTIVE, batch_size=ROWS)
    batches = [examples.batch(step) for step in range(4)]
    ids = np.concatenate([each["input_ids"][:, : LENGTH - 1] for each in batches], 1)
    targets = np.concatenate([each["target_ids"][:, : LENGTH - 1] for each in batches], 1)
    np.testing.assert_array_equal(targets[:, :-1], ids[:, 1:])
    for batch in batches:
        assert batch["input_mask"].all() and not batch["token_type_ids"].any()
        assert (batch["target_weights"] == (np.arange(LENGTH) < LENGTH - 1)).all()
    # The text goes on, and a separator stands between documents.
    inside = (ids[:, 1:] != SEP) & (ids[:, :-1] != SEP)
    assert (np.diff(ids)[inside] == 1).all()
    # Five of the seven rows read the source of share 0.7.
    source = corpus.source(np.sort(ids, axis=1)[:, -1] - FIRST)
    assert source.tolist() == [0] * 5 + [1] * 2
    some = examples.batch(2, slice(3, 5))
    for name, rows in batches[2].items():
        np.testing.assert_array_equal(some[name], rows[3:5])


def test_at_the_end_of_a_source_a_row_goes_on_at_its_beginning(long_documents):
    examples = long_documents.examples(LENGTH, objective=OBJECTIVE, batch_size=ROWS, split=HELDOUT)
    stream = Stream(TokenStore.open(long_documents.folder, HELDOUT), SEP)
    count = (stream.size - LENGTH) // (LENGTH - 1) + 1
    first = examples.batch(0)["input_ids"]
    np.testing.assert_array_equal(examples.batch(count)["input_ids"], first)
    assert len({examples.batch(step)["input_ids"][0, 0] for step in range(count)}) == count


def test_a_source_that_is_too_short(corpus):
    with pytest.raises(InputError, match="tokens, less than the 1000000 of a row: add text"):
        corpus.examples(10**6, objective=OBJECTIVE, batch_size=ROWS)
