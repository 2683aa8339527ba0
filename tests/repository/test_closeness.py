"""The tolerance of the suite: rounding passes, and an error of a thousandth does not."""

import re

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.checkout import REPOSITORY
from tests.helpers.closeness import SEEN, assert_close, rounding


def test_rounding_passes_and_a_thousandth_does_not():
    rng = np.random.default_rng(0)
    exact = {"a": rng.normal(size=(3, 5)) * 1e-4, "b": [rng.normal(size=7) * 1e3], "c": 0.3}
    rounded = {name: np.asarray(value, np.float32) for name, value in exact.items()}
    assert_close(rounded | {"b": list(rounded["b"])}, exact, terms=1)
    for name, value in exact.items():
        wrong = {**exact, name: np.asarray(value) * (1 + SEEN)}
        wrong["b"] = list(wrong["b"])
        with pytest.raises(AssertionError, match=f"\\['{name}'\\]"):
            assert_close(wrong, exact, terms=8000)


def test_a_sum_of_n_terms_stays_within_n_roundings():
    terms = np.random.default_rng(1).uniform(1, 2, (9, 999)).astype(np.float32)
    one_by_one = np.zeros(9, np.float32)
    for column in terms.T:
        one_by_one += column
    assert_close(one_by_one, terms.sum(1, dtype=np.float64), terms=999)
    assert rounding(2.0, 3) == 3 * 2.0**-24 * 2
    assert rounding(1.0, 4, ml_dtypes.bfloat16) == 4 * 2.0**-8


def test_what_is_no_rounding_fails():
    with pytest.raises(AssertionError, match="would hide an error"):
        assert_close(1.0, 1.0, terms=9000)
    with pytest.raises(AssertionError, match="other shapes"):
        assert_close(np.ones(3), np.ones((1, 3)))
    with pytest.raises(AssertionError, match="nan"):
        assert_close([1.0, np.nan], [1.0, 2.0])
    with pytest.raises(AssertionError):  # values that cancel are measured by what was added
        assert_close([1e-6], [0.0])
    assert_close([1e-6], [0.0], size=1.0)
    zero_but_for_rounding = {"a": 1e-7, "b": 5.0}
    assert_close(zero_but_for_rounding, {"a": 0.0, "b": 5.0}, share=0.01)
    with pytest.raises(AssertionError):
        assert_close(zero_but_for_rounding, {"a": 0.0, "b": 5.0}, share=1e-4)


def test_no_other_place_says_how_far_float32_may_lie_apart():
    """What is exact in float64 has smaller bounds, and what is printed larger ones."""
    by_hand = re.compile(r"\b(?:atol|abs)=[\d.]+e-0?[5-8]\b")
    found = {
        path.name: by_hand.findall(path.read_text(encoding="utf-8"))
        for path in (REPOSITORY / "tests").rglob("*.py")
        if path.name != "test_layers.py"  # where a formula takes the place of another
    }
    assert not {name: bounds for name, bounds in found.items() if bounds}
