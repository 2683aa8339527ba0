"""Decisions by similarity: by hand, by trying every threshold, and next to scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score

from bertjax.tasks.similarity.choices import pair_scores, triplet_accuracy


def test_triplets():
    positive, negative = np.array([0.9, 0.2, 0.5, -1.0, 0.3]), np.array([0.1, 0.4, 0.5, -2.0, 0.3])
    assert triplet_accuracy(positive, negative) == pytest.approx(100 * (2 + 0.5 + 0.5) / 5)


def test_pairs_by_hand():
    labels, similarities = np.array([0, 1, 1, 0, 1]), np.array([0.1, 0.5, 0.9, 0.7, 0.3])
    assert pair_scores(labels, similarities) == pytest.approx(
        {
            **{"accuracy": 80, "accuracy_threshold": 0.2},  # all but the lowest: 3 of 4 belong
            **{"f1": 100 * 6 / 7, "f1_threshold": 0.2, "precision": 75, "recall": 100},
            "average_precision": 100 * (1 + 2 / 3 + 3 / 4) / 3,
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_pairs_by_every_threshold(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 37)
    similarities = (rng.integers(0, 13, 37) + 3 * labels * (seed % 2)).astype(np.float32) / 7
    found = pair_scores(labels, similarities)
    tried = [similarities >= cut for cut in [*similarities, similarities.max() + 1]]
    assert found["accuracy"] == pytest.approx(100 * max(np.mean(t == labels) for t in tried))
    assert found["f1"] == pytest.approx(100 * max(f1_score(labels, t) for t in tried))
    result = similarities >= found["accuracy_threshold"], similarities >= found["f1_threshold"]
    assert 100 * np.mean(result[0] == labels) == pytest.approx(found["accuracy"])
    assert 100 * f1_score(labels, result[1]) == pytest.approx(found["f1"])
    assert 100 * np.mean(labels[result[1]]) == pytest.approx(found["precision"])
    assert 100 * np.mean(result[1][labels == 1]) == pytest.approx(found["recall"])
    expected = 100 * average_precision_score(labels, similarities)
    assert found["average_precision"] == pytest.approx(expected)


def test_pairs_of_one_class_or_one_similarity():
    similarities = np.array([0.5, 0.25, 0.75])
    none = pair_scores(np.zeros(3, int), similarities)
    assert (none["accuracy"], none["f1"], none["average_precision"]) == (100, 0, 0)
    assert none["accuracy_threshold"] > 0.75
    every = pair_scores(np.ones(3, int), similarities)
    assert (every["accuracy"], every["f1"], every["average_precision"]) == (100, 100, 100)
    assert every["accuracy_threshold"] < 0.25
    same = pair_scores(np.array([1, 0, 0]), np.full(3, 0.5))
    assert same["accuracy"] == pytest.approx(200 / 3) and same["f1"] == pytest.approx(50)
    assert same["average_precision"] == pytest.approx(100 / 3)
