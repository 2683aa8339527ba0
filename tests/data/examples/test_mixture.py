"""Sources mixed by share, exactly, and each read in its own order."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.mixture import Mixture

BLOCK = 4096


@pytest.mark.parametrize(
    "shares",
    [[1.0], [0.5, 0.5], [0.7, 0.3], [0.9, 0.0999, 0.0001 + 1 / BLOCK], [0.2] * 5, [1 / 3] * 3],
)
def test_shares_are_exact_in_every_block(shares):
    shares = np.array(shares) / np.sum(shares)
    mixture = Mixture(shares, Draws(0, "m"))
    for block in (0, 1, 1000):
        source, _ = mixture.locate(block * BLOCK + np.arange(BLOCK))
        counts = np.bincount(source, minlength=len(shares))
        assert counts.sum() == BLOCK
        assert (np.abs(counts - shares * BLOCK) < 1).all()


def test_ranks_number_the_examples_of_a_source_without_a_gap():
    mixture = Mixture(np.array([0.6, 0.3, 0.1]), Draws(0, "m"))
    source, rank = mixture.locate(np.arange(5 * BLOCK))
    for s in range(3):
        np.testing.assert_array_equal(rank[source == s], np.arange((source == s).sum()))


def test_sources_are_spread_within_a_block():
    mixture = Mixture(np.array([0.5, 0.5]), Draws(0, "m"))
    source, _ = mixture.locate(np.arange(BLOCK))
    runs = (np.diff(source) != 0).sum() + 1
    assert abs(runs - BLOCK / 2) < 5 * np.sqrt(BLOCK) / 2
    for quarter in source.reshape(4, -1):
        assert abs(quarter.mean() - 0.5) < 5 * 0.5 / np.sqrt(quarter.size)


def test_rows_are_located_alone():
    mixture = Mixture(np.array([0.5, 0.3, 0.2]), Draws(0, "m"))
    whole = mixture.locate(np.arange(9000))
    some = np.array([8999, 3, 4096, 4095])
    for all_rows, these in zip(whole, mixture.locate(some), strict=True):
        np.testing.assert_array_equal(these, all_rows[some])


def test_a_share_too_small_to_be_seen():
    with pytest.raises(InputError, match="1e-05 of the examples, less than 1 in 4096.*@WEIGHT"):
        Mixture(np.array([1 - 1e-5, 1e-5]), Draws(0, "m"))
