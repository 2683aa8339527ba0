"""How often each piece of the vocabulary stands in a corpus."""

from collections.abc import Iterable

import numpy as np

from bertjax.data.corpus.store import TokenStore

_MOST = 2**24  # tokens that are counted; enough for three digits of the loss of guessing by shares


def word_frequencies(store: TokenStore, special_ids: Iterable[int]) -> np.ndarray:
    """The share of each piece in the text of the training examples, float64 [V]; they sum to 1.

    Each source has the weight of its share of the examples. Documents are taken at equal distances,
    until there are about 17 million tokens. Special pieces have 0.
    """
    every = -(-store.token_count // _MOST)
    total = np.zeros(store.vocabulary_size)
    for source in store.sources:
        chosen = np.arange(source.first_document, source.last_document_exclusive, every)
        starts = store.document_starts[chosen]
        tokens = store.read_spans(starts, store.document_starts[chosen + 1] - starts)
        counts = np.bincount(tokens, minlength=store.vocabulary_size)
        counts[list(special_ids)] = 0
        total += source.share * counts / max(counts.sum(), 1)
    return total / total.sum()
