"""How much of a row of packed documents a token sees."""

import numpy as np


def mean_context(segment_ids: np.ndarray) -> float:
    """The mean number of tokens in a token's document, from `segment_ids` [R, S]; 0 is padding."""
    rows, length = segment_ids.shape
    documents = (np.arange(rows)[:, None] * (length + 1) + segment_ids)[segment_ids > 0]
    sizes = np.bincount(documents).astype(np.float64)
    return float((sizes**2).sum() / sizes.sum())
