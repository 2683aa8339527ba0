"""Mixing weights."""

import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.weights import check_weights, shares, split_weight


def test_split_weight():
    assert split_weight("text:a/*.txt@0.7") == ("text:a/*.txt", 0.7)
    assert split_weight("DIR@3") == ("DIR", 3.0)
    assert split_weight("DIR@1e-3") == ("DIR", 0.001)
    assert split_weight("text:user@host/*.txt") == ("text:user@host/*.txt", None)
    assert split_weight("a@1@.5") == ("a@1", 0.5)
    with pytest.raises(InputError, match="must be a positive number"):
        split_weight("DIR@0")


def test_all_or_none():
    check_weights(["a", "b"], [1.0, 2.0])
    check_weights(["a", "b"], [None, None])
    with pytest.raises(InputError, match="b has no weight but another has"):
        check_weights(["a", "b"], [1.0, None])


def test_shares():
    assert shares([3.0, 1.0], [10, 10]) == [0.75, 0.25]
    assert shares([None, None], [10, 30]) == [0.25, 0.75]
    assert shares([1e308, 1e308], [10, 30]) == [0.5, 0.5]
    assert shares([1.5e308, 0.5e308, 1e-300], [1, 1, 1]) == pytest.approx([0.75, 0.25, 0.0])
