"""Metrics of classification and regression, in percent as papers print them."""

import numpy as np
from numpy.typing import ArrayLike


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The share of right predictions."""
    return 100 * float(np.mean(gold == predicted))


def f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The F1 of class 1 of two classes; 0 if class 1 does not occur."""
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(gold, predicted, zero_division=0))


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The mean of the F1 of each class that occurs."""
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(gold, predicted, average="macro", zero_division=0))


def matthews(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Matthews' correlation; 0 if all predictions are the same."""
    from sklearn.metrics import matthews_corrcoef

    return 100 * float(matthews_corrcoef(gold, predicted))


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson's correlation of the numbers; 0 if it is not defined."""
    from scipy.stats import pearsonr

    return 100 * float(pearsonr(gold, predicted).statistic) if vary(gold, predicted) else 0.0


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Spearman's correlation, which compares ranks; 0 if it is not defined."""
    from scipy.stats import spearmanr

    return 100 * float(spearmanr(gold, predicted).statistic) if vary(gold, predicted) else 0.0


def vary(*columns: ArrayLike) -> bool:
    """Whether a correlation is defined: all numbers are finite, and no column is constant."""
    return all(np.isfinite(column).all() and np.ptp(column) > 0 for column in columns)
