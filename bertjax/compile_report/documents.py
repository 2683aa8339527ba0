"""Rows of packed documents for a report that has no corpus."""

import numpy as np

_ROWS = 256
_SPREAD = 1.1  # of the logarithm of a document's length


def packed_rows(length: int, mean: float) -> np.ndarray:
    """The numbers of documents in full rows, int [R, S]; lengths are lognormal, the last is cut."""
    rng = np.random.default_rng(0)
    tokens = _ROWS * length
    sizes = rng.lognormal(np.log(mean) - _SPREAD**2 / 2, _SPREAD, int(4 * tokens / mean) + 8)
    ends = np.cumsum(np.maximum(np.rint(sizes), 1).astype(np.int64))
    assert ends[-1] >= tokens
    numbers = np.searchsorted(ends, np.arange(tokens), side="right").reshape(_ROWS, length)
    return 1 + numbers - numbers[:, :1]


def share_of_blocks(segment_ids: np.ndarray, block: int) -> float:
    """The share of the blocks [block, block] of pairs that have pairs of the same document.

    `segment_ids`, int [R, S], rise along a row. The last block of a row may be shorter.
    """
    first = segment_ids[:, ::block]
    last = np.concatenate([segment_ids[:, block - 1 : -1 : block], segment_ids[:, -1:]], 1)
    return float(
        ((first[:, :, None] <= last[:, None]) & (last[:, :, None] >= first[:, None])).mean()
    )
