"""Exact match and F1 of answers, as the official evaluate-v1.1.py and -v2.0.py count them."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """The text in lower case, without ASCII punctuation, articles and superfluous white space."""
    return without_articles(text.lower().translate(_NO_PUNCTUATION))


def without_articles(text: str) -> str:
    """A text in lower case without articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_and_f1(
    prediction: str,
    answers: Sequence[str],
    *,
    unanswerable: bool,
    normal: Callable[[str], str] = normalized,
) -> tuple[float, float]:
    """The exact match and the F1 (of words) of a prediction, each with its best one of `answers`.

    Args:
      prediction: "" means "no answer".
      unanswerable: whether the rules of SQuAD 2.0 hold, in which `answers` may be empty, and F1 is
        1 if both normalized texts are empty. Otherwise the rules of SQuAD 1.1 hold.
      normal: a text -> the text that is compared.
    """
    predicted = normal(prediction)
    golds = [normal(answer) for answer in answers]
    if unanswerable:
        golds = [gold for gold in golds if gold] or [""]
    if unanswerable and not predicted:
        return (1.0, 1.0) if golds == [""] else (0.0, 0.0)
    return float(predicted in golds), max(_f1(predicted.split(), gold.split()) for gold in golds)


def _f1(prediction: list[str], answer: list[str]) -> float:
    common = (Counter(prediction) & Counter(answer)).total()
    if not common:
        return 0.0
    precision, recall = common / len(prediction), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def best_threshold(null_odds: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> float:
    """The threshold with the highest sum of scores; above it, the prediction is "no answer".

    It gives the same decisions as `find_best_thresh` in evaluate-v2.0.py, which returns one of the
    odds, the lowest of equally good ones. This function returns the middle between that value and
    the next higher odds, because odds that are computed again elsewhere differ by rounding. The
    arrays are [N]: the odds of "no answer", the score of the answer, and that of "no answer".
    """
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    gains = np.cumsum((answered - unanswered)[order])
    gains[:-1][odds[:-1] == odds[1:]] = -np.inf  # equal odds get the same decision
    best = int(np.argmax(gains))
    if gains[best] <= 0:
        return float(odds[0]) - 1.0  # no question gets an answer
    if best == len(odds) - 1:
        return float(odds[best]) + 1.0  # every question gets an answer
    return float(odds[best] + odds[best + 1]) / 2
