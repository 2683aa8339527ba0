"""Metrics, compared with values computed by hand and with their definitions."""

import numpy as np
import pytest

from bertjax.tasks import scores

GOLD = np.array([1, 1, 1, 0, 0, 1])
GUESS = np.array([1, 0, 1, 1, 0, 1])  # 3 true positives, 1 false one, 1 false negative, 1 true


def test_by_hand():
    assert scores.accuracy(GOLD, GUESS) == pytest.approx(100 * 4 / 6)
    assert scores.f1(GOLD, GUESS) == pytest.approx(100 * 6 / 8)
    assert scores.macro_f1(GOLD, GUESS) == pytest.approx(100 * (6 / 8 + 2 / 4) / 2)
    # (tp tn - fp fn) / sqrt((tp + fp)(tp + fn)(tn + fp)(tn + fn))
    assert scores.matthews(GOLD, GUESS) == pytest.approx(100 * (3 - 1) / np.sqrt(4 * 4 * 2 * 2))


def test_correlations_by_their_definitions():
    gold, guess = np.array([0.0, 1.0, 2.5, 5.0]), np.array([0.1, 3.0, 2.0, 4.0])
    a, b = gold - gold.mean(), guess - guess.mean()
    assert scores.pearson(gold, guess) == pytest.approx(100 * (a @ b) / np.sqrt(a @ a * (b @ b)))
    # 1 - 6 sum d^2 / n (n^2 - 1): two neighbours have changed places
    assert scores.spearman(gold, guess) == pytest.approx(100 * (1 - 6 * 2 / (4 * 15)))
    assert scores.spearman([1, 2, 2, 3], [1, 5, 5, 9]) == pytest.approx(100)


def test_what_is_not_defined_is_zero():
    same = np.ones(4)
    for correlation in (scores.pearson, scores.spearman):
        assert correlation([1.0, 2.0, 3.0, 4.0], same) == 0
        assert correlation([1.0, 2.0, 3.0, 4.0], [1.0, np.nan, 2.0, 3.0]) == 0
    assert scores.matthews(GOLD, np.ones_like(GOLD)) == 0
    assert scores.f1(np.zeros(3, int), np.zeros(3, int)) == 0
