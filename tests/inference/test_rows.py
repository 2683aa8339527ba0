"""Arrays of sequences are padded on the right and below."""

import numpy as np

from bertjax.inference.rows import Column, Columns


def test_columns():
    words = [[[1, 2]], [[3, 4], [5, 6], [7, 8]], [[9, 9], [9, 9]]]
    rows = Columns(
        {
            "words": Column(words, -1),
            "places": Column([[], [0, 2], [1]], width=2),
            "absent": Column([()] * 3),
        }
    )
    assert rows.lengths.tolist() == [1, 3, 2]
    batch = rows.batch(np.array([1, 0]), 3, 4)
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}
    pad = [-1, -1]
    assert batch["words"].tolist() == [
        [[3, 4], [5, 6], [7, 8], pad],
        [[1, 2], pad, pad, pad],
        [pad] * 4,
    ]
    assert batch["input_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert batch["places"].tolist() == [[0, 2], [0, 0], [0, 0]]
    assert batch["absent"].shape == (3, 4) and not batch["absent"].any()
    assert Columns({"ids": Column([])}).batch(np.arange(0), 0, 5)["ids"].shape == (0, 5)
