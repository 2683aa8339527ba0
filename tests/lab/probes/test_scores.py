"""Scores of predicted trees, by hand and by scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from bertjax.lab.probes.scores import (
    mean_over_lengths,
    root_accuracy,
    spanning_tree,
    spearman_by_length,
    uuas,
)
from bertjax.lab.probes.trees import Tree


def tree(heads, punctuation=()):
    n = len(heads)
    marks = np.isin(np.arange(n), list(punctuation))
    return Tree([f"w{k}" for k in range(n)], np.array(heads), marks, "here")


def test_the_least_spanning_tree():
    from scipy.sparse.csgraph import minimum_spanning_tree

    random = np.random.default_rng(0)
    for n in (1, 2, 7, 15):
        distances = random.uniform(1, 9, (n, n))
        distances += distances.T
        reference = minimum_spanning_tree(np.triu(distances, 1)).nonzero()
        expected = {(int(i), int(j)) for i, j in zip(*reference, strict=True)}
        assert spanning_tree(distances, np.arange(n)) == expected


def test_uuas():
    """Gold 0-1, 1-2, 1-3; word 4 is punctuation. The prediction has 0-1, 1-3 and 2-3."""
    sentence = tree([1, -1, 1, 1, 2], punctuation=[4])
    distances = np.full((5, 5), 9.0)
    for i, j in ((0, 1), (1, 3), (2, 3), (3, 4), (2, 4)):
        distances[i, j] = distances[j, i] = 1.0
    assert uuas([sentence], [distances]) == pytest.approx(100 * 2 / 3)
    other = tree([-1, 0])
    assert uuas([sentence, other], [distances, other.distances]) == pytest.approx(75)


def test_root_accuracy():
    """The mark of punctuation is the least deep, and does not count."""
    sentence = tree([1, -1, 1], punctuation=[2])
    assert root_accuracy([sentence], [np.array([1.0, 0.5, 0.1])]) == 100
    assert root_accuracy([sentence, sentence], [np.array([0.2, 0.5, 0.1])] * 2) == 0


def test_correlations_by_length():
    random = np.random.default_rng(1)
    trees = [tree([-1, *range(n - 1)]) for n in (5, 5, 8, 3)]
    golds = [each.distances for each in trees]
    found = [random.uniform(size=gold.shape).round(1) for gold in golds]  # with equal ones
    by_length = spearman_by_length(trees, golds, found)

    def reference(numbers):
        rows = [(g, f) for n in numbers for g, f in zip(golds[n], found[n], strict=True)]
        return np.mean([spearmanr(g, f).correlation for g, f in rows])

    assert by_length == pytest.approx({3: reference([3]), 5: reference([0, 1]), 8: reference([2])})
    assert mean_over_lengths(by_length) == pytest.approx((reference([0, 1]) + reference([2])) / 2)
    depths = [each.depths for each in trees]
    assert spearman_by_length(trees, depths, depths) == pytest.approx({3: 1, 5: 1, 8: 1})
