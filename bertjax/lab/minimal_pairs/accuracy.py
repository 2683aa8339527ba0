"""How many pairs a model judges right: by paradigm, by phenomenon, by field, and overall."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Accuracy(NamedTuple):
    """The share of right pairs, in percent; `stderr` is None if pairs cannot show it."""

    accuracy: float
    stderr: float | None
    pairs: int


def judged(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """1.0 where the good sentence has the higher score, 0.5 where both are equal, otherwise 0.0."""
    return np.heaviside(good - bad, 0.5)


def over_pairs(outcomes: np.ndarray) -> Accuracy:
    """The mean over the outcomes [N] of `judged`.

    Its standard error is that of N independent pairs: without ties sqrt(p (1 - p) / N).
    """
    mean, deviation, pairs = float(outcomes.mean()), float(outcomes.std()), len(outcomes)
    error = 100 * deviation / math.sqrt(pairs) if pairs > 1 else None
    return Accuracy(100 * mean, error, pairs)


def by_name(outcomes: np.ndarray, names: Sequence[str]) -> dict[str, Accuracy]:
    """The mean over the pairs of each name, in the order of the names' first pairs, without ""."""
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        numbers.setdefault(name, []).append(number)
    return {name: over_pairs(outcomes[places]) for name, places in numbers.items() if name}


def over_paradigms(paradigms: Mapping[str, Accuracy]) -> Accuracy:
    """The mean over paradigms, which all have the same weight, as in BLiMP (arXiv 1912.00582).

    Its standard error is that of other pairs of the same paradigms; None if one has a single pair.
    """
    count, pairs = len(paradigms), sum(each.pairs for each in paradigms.values())
    mean = sum(each.accuracy for each in paradigms.values()) / count
    errors = [each.stderr for each in paradigms.values() if each.stderr is not None]
    return Accuracy(mean, math.hypot(*errors) / count if len(errors) == count else None, pairs)
