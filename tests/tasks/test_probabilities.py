"""Probabilities of several models together, compared with values computed by hand."""

import numpy as np
import pytest

from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import Classification, Regression
from bertjax.tasks.probabilities import BY, LOGITS, PROBABILITIES, VOTES, combined, softmax
from bertjax.tasks.tagging import Tagging

ONE, TWO, THREE = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.5, 0.4]), np.array([0.6, 0.4, 0.0])


def test_the_mean_of_probabilities():
    np.testing.assert_allclose(combined(np.array([ONE, TWO]), PROBABILITIES), [0.35, 0.4, 0.25])


def test_the_mean_of_logits():
    """A constant that is added to a member's logits changes nothing."""
    logits = np.random.default_rng(0).normal(size=(3, 7, 4)) * 5
    shifted = logits + np.array([0.0, 11.0, -90.0])[:, None, None]
    together = combined(softmax(shifted), LOGITS)
    np.testing.assert_allclose(together, softmax(logits.mean(0)), rtol=1e-12)
    assert np.isfinite(combined(np.array([THREE, THREE]), LOGITS)).all()


def test_votes_and_what_decides_between_equal_ones():
    np.testing.assert_allclose(
        combined(np.array([ONE, TWO, THREE]), VOTES),
        (np.array([2, 1, 0]) + np.array([1.3, 1.2, 0.5]) / 3) / 4,
    )
    # Two against one win, however sure the one is; of two, the surer one.
    unsure, sure = np.array([0.51, 0.49]), np.array([0.0, 1.0])
    assert combined(np.array([unsure, unsure, sure]), PROBABILITIES).argmax() == 1
    assert combined(np.array([unsure, unsure, sure]), VOTES).argmax() == 0
    assert combined(np.array([unsure, sure]), VOTES).argmax() == 1


@pytest.mark.parametrize("by", BY)
def test_what_is_combined_sums_to_one(by):
    members = softmax(np.random.default_rng(1).normal(size=(5, 2, 3, 4)) * 3)
    together = combined(members, by)
    assert together.shape == (2, 3, 4)
    np.testing.assert_allclose(together.sum(-1), 1)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("family", [Classification(("no", "yes", "so")), MultipleChoice(3)])
def test_classes_and_choices(family, by):
    found = family.combine([[ONE, TWO], [THREE, THREE]], by)
    np.testing.assert_array_equal(found[0], combined(np.array([ONE, THREE]), by))
    np.testing.assert_array_equal(found[1], combined(np.array([TWO, THREE]), by))


def test_numbers():
    assert Regression().combine([[1.0, -2.0], [4.0, 0.0]], PROBABILITIES) == [2.5, -1.0]


def test_words():
    """A sentence without words has no tags."""
    family = Tagging(("O", "B-LOC", "I-LOC"))
    empty = np.zeros((0, 3))
    members = [[np.array([ONE, TWO]), empty], [np.array([TWO, THREE]), empty]]
    first, second = family.combine(members, PROBABILITIES)
    np.testing.assert_allclose(first, [[0.35, 0.4, 0.25], [0.35, 0.45, 0.2]])
    assert family.tags(first) == ("B-LOC", "B-LOC") and family.tags(second) == ()
