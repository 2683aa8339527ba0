"""Exact match and F1 of answers, as the official evaluate-v1.1.py and -v2.0.py count them."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_and_f1(
    prediction: str, answers: Sequence[str], *, unanswerable: bool
) -> tuple[float, float]:
    """Whether an answer is one of those given, and its F1 with the best of them, by words.

    Args:
      prediction: "" for no answer.
      answers: as people gave them.
      unanswerable: the rules of SQuAD 2.0, where `answers` may be empty, and F1 is 1 where
        nothing is left of both texts; of 1.1 otherwise.
    """
    mine = normalized(prediction)
    golds = [normalized(answer) for answer in answers]
    if unanswerable:
        golds = [gold for gold in golds if gold] or [""]
    if unanswerable and not mine:
        return (1.0, 1.0) if golds == [""] else (0.0, 0.0)
    return float(mine in golds), max(_f1(mine.split(), gold.split()) for gold in golds)


def _f1(prediction: list[str], answer: list[str]) -> float:
    common = (Counter(prediction) & Counter(answer)).total()
    if not common:
        return 0.0
    precision, recall = common / len(prediction), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def best_threshold(null_odds: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> float:
    """The threshold above which to give no answer, such that the sum of scores is highest.

    It decides as that of `find_best_thresh` in evaluate-v2.0.py, the lowest of equally good ones,
    which is one of the odds. This one lies between that and the next: odds that are computed once
    more, on another machine or in another batch, differ by rounding, and decide alike.

    Args:
      null_odds: [N], of no answer to each question.
      answered: [N], the score of the answer.
      unanswered: [N], the score of no answer.
    """
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    gains = np.cumsum((answered - unanswered)[order])
    gains[:-1][odds[:-1] == odds[1:]] = -np.inf  # equal odds are answered together or not at all
    best = int(np.argmax(gains))
    if gains[best] <= 0:
        return float(odds[0]) - 1.0  # no answer to anything
    if best == len(odds) - 1:
        return float(odds[best]) + 1.0  # an answer to everything
    return float(odds[best] + odds[best + 1]) / 2
