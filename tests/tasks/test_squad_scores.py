"""The scores of SQuAD, by the official scripts' rules and on a published prediction file."""

import json
import lzma

import numpy as np
import pytest

from bertjax.tasks.squad import Squad
from bertjax.tasks.squad_scores import best_threshold, exact_and_f1, normalized


def test_normalized():
    assert normalized("The  Cat's (a) \u201cthe\u201d an\tMat.") == "cats \u201c \u201d mat"
    assert normalized("another theme") == "another theme"
    assert normalized("a-b") == "ab" and normalized("the-cat") == "thecat"


@pytest.mark.parametrize(
    "prediction, answers, version_1, version_2",
    [
        ("the Cat", ["cat"], (1, 1), (1, 1)),
        ("black cat", ["a cat", "dog"], (0, 2 / 3), (0, 2 / 3)),
        ("cat cat sat", ["cat sat sat on"], (0, 4 / 7), (0, 4 / 7)),
        ("dog", ["cat"], (0, 0), (0, 0)),
        ("", ["cat"], (0, 0), (0, 0)),
        # If a normalized text is empty, the two scripts differ.
        ("The", ["a"], (1, 0), (1, 1)),
        ("The", ["a", "cat"], (1, 0), (0, 0)),
        ("cat", ["a"], (0, 0), (0, 0)),
    ],
)
def test_exact_and_f1(prediction, answers, version_1, version_2):
    assert exact_and_f1(prediction, answers, unanswerable=False) == pytest.approx(version_1)
    assert exact_and_f1(prediction, answers, unanswerable=True) == pytest.approx(version_2)


def test_no_answer():
    assert exact_and_f1("", [], unanswerable=True) == (1, 1)
    assert exact_and_f1("cat", [], unanswerable=True) == (0, 0)


def test_best_threshold_is_the_best_of_all():
    numbers = np.random.default_rng(0)
    for count in [1, 2, 5, 30] * 10:
        odds = numbers.integers(-4, 5, count).astype(float)  # many are equal
        answered = numbers.random(count).round(1)
        unanswered = numbers.integers(0, 2, count).astype(float)
        if count == 30:
            answered[unanswered == 1] = 0

        def total(threshold, odds=odds, answered=answered, unanswered=unanswered):
            return np.where(odds > threshold, unanswered, answered).sum()

        best = best_threshold(odds, answered, unanswered)
        all_of_them = [total(each) for each in [odds.min() - 1, *odds]]
        assert total(best) == pytest.approx(max(all_of_them))
        assert (
            np.abs(odds - best).min() >= 0.5
        )  # the odds are integers, so rounding does not matter


def test_best_threshold_by_hand():
    odds, no_answer = np.array([3.0, -1.0, 0.5, 2.0]), np.array([1.0, 0.0, 0.0, 1.0])
    assert best_threshold(odds, np.array([0.0, 0.5, 1.0, 0.0]), no_answer) == 1.25
    assert best_threshold(odds, np.zeros(4), no_answer) == -2.0  # answer nothing
    assert best_threshold(odds, np.ones(4), np.zeros(4)) == 4.0  # answer everything


def test_the_published_score_of_bert(shared_data):
    """The predictions are those of Google's ensemble (Table 2, with the leaderboard's numbers)."""
    path = shared_data / "squad/predictions/dev-v1.1.bert-ensemble-google.json.xz"
    predictions = json.loads(lzma.decompress(path.read_bytes()))
    questions = Squad(str(shared_data / "squad")).read("dev")
    assert len(questions) == len(predictions) == 10570
    scores = [
        exact_and_f1(predictions[each.id], [a.text for a in each.answers], unanswerable=False)
        for each in questions
    ]
    exact, f1 = 100 * np.mean(scores, 0)
    assert (f"{exact:.3f}", f"{f1:.3f}") == ("86.206", "92.196")
