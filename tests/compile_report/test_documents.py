"""The rows of packed documents that a report assumes, and the blocks that they need."""

import numpy as np
import pytest

from bertjax.compile_report.documents import packed_rows, share_of_blocks
from bertjax.data.examples.documents import mean_context


def test_the_share_of_blocks():
    """Blocks of 2, the last of a row shorter, counted by hand."""
    segment_ids = np.array([[1, 1, 1, 2, 2], [1, 2, 3, 3, 4]])
    # First row: 11, 12, 2: all pairs but (first, last) and back. Second: 12, 33, 4: equal ones.
    assert share_of_blocks(segment_ids, 2) == pytest.approx((7 + 3) / 18)
    assert share_of_blocks(np.ones((3, 7), int), 512) == 1


@pytest.mark.parametrize("length", [1_000, 8_192])
def test_packed_rows(length):
    """Their documents rise from 1 without a gap, and are as long as the mean says."""
    rows = packed_rows(length, 50)
    assert rows.shape[1] == length and (rows[:, 0] == 1).all()
    assert set(np.unique(np.diff(rows))) == {0, 1}
    # A row begins and ends within a document, which counts for one more.
    assert rows.size / (rows[:, -1] - 1).sum() == pytest.approx(50, rel=0.1)


def test_the_mean_context():
    """Documents of 3, 1 and 2 tokens; 0 is padding."""
    segment_ids = np.array([[1, 1, 1, 2, 0], [1, 1, 0, 0, 0]])
    assert mean_context(segment_ids) == pytest.approx((9 + 1 + 4) / 6)
