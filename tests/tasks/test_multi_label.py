"""Several labels at once: targets, thresholds, and scores compared with scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from bertjax.base.errors import InputError
from bertjax.tasks.classification import TextPair
from bertjax.tasks.multi_label import MultiLabel, best_threshold, f1
from bertjax.tasks.probabilities import BY
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

FAMILY = MultiLabel(("x", "y", "z"))


def labelled(*labels) -> list[TextPair]:
    return [TextPair("0", "a", None, each, f"data.csv line {i}") for i, each in enumerate(labels)]


def case(seed: int, rows: int = 23, classes: int = 5):
    """A family, examples with their gold labels, and probabilities that know something of them.

    The first class never occurs, the second one always.
    """
    rng = np.random.default_rng(seed)
    gold = rng.random((rows, classes)) < np.linspace(0.1, 0.6, classes)
    gold[:, 0], gold[:, 1:2] = False, True
    probabilities = 1 / (1 + np.exp(-rng.normal(2 * gold - 2, 1.5)))
    probabilities = np.round(probabilities, rng.integers(1, 6))  # some are equal
    family = MultiLabel(tuple(f"c{number}" for number in range(classes)))
    names = [tuple(np.array(family.classes)[row]) for row in gold]
    return family, labelled(*names), gold, list(probabilities)


def test_labels_become_targets():
    tokenizer = Tokenizer("wordpiece", "\n".join([*SPECIAL_TOKENS, "a"]).encode(), "here")
    examples = labelled(("z", "x"), (), ("y", "y"))
    targets = FAMILY.encode(examples, tokenizer, 8, labelled=True).labels["targets"]
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, [[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    for label, named in ((("x", "w"), "'w'"), (None, "None")):
        message = f"data.csv line 1: label {named} is unknown; the known ones are 'x', 'y', 'z'"
        with pytest.raises(InputError, match=message):
            FAMILY.targets(labelled((), label))


def test_logits_become_probabilities():
    logits = [np.array([0, np.log(3), -1e4], np.float32), np.array([-100, 1e4, 0], np.float32)]
    found = FAMILY.decode([], None, {"logits": logits})
    np.testing.assert_allclose(found, [[0.5, 0.75, 0], [np.exp(-100), 1, 0.5]], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_scores_are_those_of_scikit_learn(seed):
    family, examples, gold, predictions = case(seed)
    settings = family.tune(examples, predictions)
    thresholds = [settings["thresholds"][name] for name in family.classes]
    found = family.score(examples, predictions, settings)
    expected = {}
    for suffix, threshold in (("", thresholds), ("_at_0.5", 0.5)):
        chosen = np.array(predictions) > threshold
        for average in ("micro", "macro"):
            value = f1_score(gold, chosen, average=average, zero_division=0)
            expected[f"{average}_f1{suffix}"] = 100 * value
        if not suffix:
            expected["exact_match"] = 100 * accuracy_score(gold, chosen)
    assert found == pytest.approx(expected)
    assert found["macro_f1"] > found["macro_f1_at_0.5"]


@pytest.mark.parametrize("seed", range(5))
def test_no_threshold_has_a_higher_f1(seed):
    family, examples, gold, predictions = case(seed)
    found = family.tune(examples, predictions)["thresholds"]
    assert list(found) == list(family.classes) and found["c0"] == 0.5
    for name, right, p in zip(family.classes, gold.T, np.array(predictions).T, strict=True):
        cuts = [f1_score(right, p > cut, zero_division=0) for cut in (-1, *p)]
        assert f1_score(right, p > found[name], zero_division=0) == pytest.approx(max(cuts))


def test_thresholds_by_hand():
    gold = np.array([True, False, True, False, False])
    # Half-way between what is chosen and what is not; 0.5 where it separates as well.
    assert best_threshold(gold, np.array([0.3, 0.1, 0.35, 0.2, 0.15])) == 0.25
    assert best_threshold(gold, np.array([0.9, 0.1, 0.7, 0.2, 0.4])) == 0.5
    assert best_threshold(gold, np.array([0.9, 0.7, 0.8, 0.6, 0.65])) == 0.75
    assert best_threshold(gold[:1], np.array([1e-45])) == 0  # a float32 that is no threshold
    assert best_threshold(gold[1:2], np.array([0.9])) == 0.5
    # Both are right if all are chosen.
    assert best_threshold(np.array([True, True]), np.array([0.2, 0.4])) == 0.1
    # Above 0.075 and above 0.325 the F1 is 2/3; the second one is nearer to 0.5.
    tie = np.array([False, True, False, False, True])
    assert best_threshold(tie, np.array([0.05, 0.1, 0.2, 0.25, 0.4])) == 0.325


def test_a_class_that_does_not_occur_has_no_f1():
    nothing = np.zeros((3, 2), bool)
    assert f1(nothing, nothing) == {"macro_f1": 0, "micro_f1": 0}
    gold = np.array([[True, False], [True, False]])
    assert f1(gold, gold) == {"macro_f1": 50, "micro_f1": 100}


def test_what_was_learned():
    settings = {"thresholds": {"x": 0.1, "y": 0.1}}
    rows = [np.array([0.2, 0.2, 0.2]), np.array([0.3, 0.9, 0.4])]
    assert FAMILY.degenerate(rows, settings) == "all have 'x', 'y'"
    assert FAMILY.degenerate(rows[:1], {}) == "all have no label"
    assert FAMILY.degenerate(rows, {}) == ""


@pytest.mark.parametrize("by", BY)
def test_several_models(by):
    """Each class is decided for itself."""
    members = np.array([[[0.2, 0.9, 0.5]], [[0.4, 0.2, 1.0]], [[0.9, 0.7, 0.0]]])
    (found,) = FAMILY.combine(list(members), by)
    mean = members.mean(0)[0]
    logits = np.log(members[:, 0, :2] / (1 - members[:, 0, :2])).mean(0)
    expected = {
        "probabilities": mean,
        "logits": 1 / (1 + np.exp(-logits)),
        "votes": (np.array([1, 2, 1]) + mean) / 4,
    }[by]
    np.testing.assert_allclose(found[: len(expected)], expected)
    assert found.shape == (3,) and np.isfinite(found).all()
