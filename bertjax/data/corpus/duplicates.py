"""Documents that say the same: keys that they have in common, and the first one of each group.

  exact  the same paragraphs
  near   about 75 % of the n-grams are common: MinHash, as FineWeb (arXiv 2406.17557, section 3.4)
         does it: n-grams of 5 words, 14 bands of 8 hashes. Of two documents whose n-grams have
         the Jaccard similarity s, 1 - (1 - s^8)^14 is the probability that a band is the same:
         0.05 for s = 0.5, 0.56 for 0.7, 0.77 for 0.75, 0.92 for 0.8, 0.9996 for 0.9

A group is what is connected by such pairs.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bertjax.data.corpus.ngrams import ngram_hashes
from bertjax.data.corpus.sampling import document_hash
from bertjax.data.corpus.source import Document

EXACT, NEAR = KINDS = ("exact", "near")
BANDS, ROWS = 14, 8
SHINGLE = 5  # words
_SEED = 1


def exact_keys(documents: Sequence[Document]) -> np.ndarray:
    """uint64 [1, D], equal for equal documents."""
    return np.array([list(map(document_hash, documents))], np.uint64)


def near_keys(documents: Sequence[Document], hashes: Sequence[np.ndarray]) -> np.ndarray:
    """uint64 [BANDS, D], of which similar documents share some, by the hashes of their words."""
    from rensa import RMinHash

    shingles = [
        ngram_hashes(each, min(SHINGLE, len(each)))
        if len(each)
        else np.array([document_hash(document)], np.uint64)
        for document, each in zip(documents, hashes, strict=True)
    ]
    ends = np.cumsum([0, *map(len, shingles)], dtype=np.uint64)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(shingles), ends, num_perm=BANDS * ROWS, seed=_SEED
    )
    minima = np.array(matrix.to_rows(), np.uint64).reshape(len(documents), BANDS, ROWS)
    return np.ascontiguousarray(ngram_hashes(minima, ROWS)[..., 0].T)


def first_of_group(bands: Iterable[np.ndarray], count: int) -> np.ndarray:
    """int64 [count], the first document of each group; the keys of one band are held at a time."""
    first = np.arange(count)
    for keys in bands:
        order = np.argsort(keys, kind="stable")
        same = keys[order[1:]] == keys[order[:-1]]
        first = _joined(first, order[:-1][same], order[1:][same])
    return first


def _joined(first: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The groups after the documents a[i] and b[i] have come together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Only the groups that change are in the graph.
    groups, places = np.unique(first[np.concatenate([a, b])], return_inverse=True)
    one, other = np.split(places, 2)
    size = (len(groups), len(groups))
    graph = coo_array((np.ones(len(one), bool), (one, other)), size)
    _, component = connected_components(graph, directed=False)
    # `groups` ascends, so the first place of a component has its smallest number.
    _, smallest = np.unique(component, return_index=True)
    renamed = np.arange(len(first))
    renamed[groups] = groups[smallest[component]]
    return renamed[first]
