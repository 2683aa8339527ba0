"""How well predicted distances and depths agree with trees (Hewitt and Manning 2019, section 3).

The rules are those of their code (reporter.py); but punctuation is what CoNLL-U calls PUNCT.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from bertjax.lab.probes.trees import Tree

_LENGTHS = range(5, 51)  # of the sentences whose correlations are averaged


def spanning_tree(distances: np.ndarray, words: np.ndarray) -> set[tuple[int, int]]:
    """The edges of the least spanning tree over some words (Kruskal), by distances [n, n].

    `words` are ascending numbers. An edge has the smaller one first. Of equal distances the first
    is taken, row by row.
    """
    left, right = np.triu_indices(len(words), 1)
    order = np.argsort(distances[words[left], words[right]], kind="stable")
    group, edges = np.arange(len(words)), set()
    for i, j in zip(left[order], right[order], strict=True):
        if group[i] != group[j]:
            group[group == group[j]] = group[i]
            edges.add((int(words[i]), int(words[j])))
    return edges


def edges_of(tree: Tree, distances: np.ndarray) -> set[tuple[int, int]]:
    """The least spanning tree over the words of a sentence that are not punctuation."""
    return spanning_tree(distances, np.flatnonzero(~tree.punctuation))


def uuas(trees: Sequence[Tree], distances: Sequence[np.ndarray]) -> float:
    """The share of the trees' undirected edges that are predicted, percent."""
    right = total = 0
    for tree, predicted in zip(trees, distances, strict=True):
        gold = edges_of(tree, tree.distances)
        right += len(gold & edges_of(tree, predicted))
        total += len(gold)
    return 100 * right / max(total, 1)


def root_accuracy(trees: Sequence[Tree], depths: Sequence[np.ndarray]) -> float:
    """The share of sentences whose root is the least deep word but punctuation, percent."""
    right = 0
    for tree, predicted in zip(trees, depths, strict=True):
        shown = np.where(tree.punctuation, np.inf, predicted)
        right += int(np.argmin(shown)) == int(np.flatnonzero(tree.heads < 0)[0])
    return 100 * right / len(trees)


def spearman_by_length(
    trees: Sequence[Tree], golds: Sequence[np.ndarray], predicted: Sequence[np.ndarray]
) -> dict[int, float]:
    """The words of a sentence -> the mean Spearman correlation in sentences of that length.

    Args:
      golds, predicted: for each sentence, [n], or [n, n] with a correlation for each row.
    """
    found: dict[int, list[float]] = {}
    for tree, gold, values in zip(trees, golds, predicted, strict=True):
        if len(tree.words) > 1:
            found.setdefault(len(tree.words), []).extend(_spearman(gold, values))
    return {length: float(np.mean(found[length])) for length in sorted(found)}


def mean_over_lengths(by_length: dict[int, float]) -> float:
    """The mean over the lengths 5 to 50; nan without such sentences."""
    values = [value for length, value in by_length.items() if length in _LENGTHS]
    return float(np.mean(values)) if values else float("nan")


def _spearman(gold: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The correlation of each row; 0 where one of both is constant."""
    a, b = (rankdata(np.atleast_2d(each), axis=-1) for each in (gold, values))
    a, b = (each - each.mean(-1, keepdims=True) for each in (a, b))
    scale = np.sqrt(np.square(a).sum(-1) * np.square(b).sum(-1))
    return np.divide((a * b).sum(-1), scale, out=np.zeros(len(a)), where=scale > 0)
