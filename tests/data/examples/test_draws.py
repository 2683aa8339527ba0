"""Stateless random numbers: uniform, independent, and permutations."""

import numpy as np
import pytest

from bertjax.data.examples.draws import Draws, permute
from tests.data.examples.places import assert_rate, assert_uniform

INDEX = np.arange(200_000)


def test_draws_are_functions_of_their_indices():
    draws = Draws(7, "a")
    whole = draws.uniform("x", INDEX)
    np.testing.assert_array_equal(whole[5:99], Draws(7, "a").uniform("x", INDEX[5:99]))
    np.testing.assert_array_equal(whole[::-7], draws.uniform("x", INDEX[::-7]))
    assert whole.min() >= 0 and whole.max() < 1


@pytest.mark.parametrize("other", [Draws(8, "a"), Draws(7, "b"), Draws(2**63, "a")])
def test_other_seeds_and_streams_draw_otherwise(other):
    one, two = Draws(7, "a").uniform("x", INDEX), other.uniform("x", INDEX)
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(len(INDEX))


def test_draws_for_other_purposes_and_neighbours_are_independent():
    draws = Draws(0, "")
    x, y = draws.uniform("x", INDEX), draws.uniform("y", INDEX)
    bound = 5 / np.sqrt(len(INDEX))
    for a, b in ((x, y), (x[1:], x[:-1]), (x[2:], x[:-2]), (x[4096:], x[:-4096])):
        assert abs(np.corrcoef(a, b)[0, 1]) < bound
    assert_uniform(np.histogram2d(x, y, bins=20, range=[[0, 1], [0, 1]])[0])


def test_two_indices_do_not_commute():
    draws = Draws(0, "")
    assert not (draws.keys("x", INDEX + 1, INDEX) == draws.keys("x", INDEX, INDEX + 1)).any()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100, 1000])
def test_below_is_uniform(limit):
    drawn = Draws(1, "").below(limit, "x", INDEX)
    assert drawn.min() >= 0 and drawn.max() < limit
    if limit > 1:
        assert_uniform(np.bincount(drawn, minlength=limit))


def test_below_takes_a_limit_for_each():
    limit = INDEX % 1000 + 1
    drawn = Draws(1, "").below(limit, "x", INDEX)
    assert (drawn < limit).all() and (drawn >= 0).all()
    assert abs((drawn / limit).mean() - (1 - (1 / limit).mean()) / 2) < 5 * 0.29 / np.sqrt(
        len(INDEX)
    )


def test_below_stays_below_huge_limits():
    for limit in (2**50, 2**50 - 1, 3**31):
        drawn = Draws(1, "").below(limit, "x", INDEX)
        assert drawn.dtype == np.int64
        assert drawn.max() < limit and drawn.max() > limit * 0.9999
    # The largest uniform number times any limit stays below it.
    top = (2**52 - 1) * 2.0**-52
    limits = np.concatenate(
        [2 ** np.arange(1, 51), 2 ** np.arange(1, 51) - 1, 3 ** np.arange(1, 31)]
    )
    assert ((top * limits).astype(np.int64) < limits).all()


@pytest.mark.parametrize("width", [1, 2, 7, 128])
def test_bits_are_even_and_independent(width):
    bits = Draws(2, "").bits(width, "x", np.arange(20_000))
    assert bits.shape == (20_000, width) and bits.dtype == np.uint32
    for bit in (0, 1, 15, 31):
        ones = (bits >> np.uint32(bit)) & np.uint32(1)
        assert_rate(ones.sum(), bits.size, 0.5)
        if width > 1:
            assert_rate((ones[:, 0] ^ ones[:, 1]).sum(), len(bits), 0.5)


def permutation(size, key):
    sizes, keys = np.full(size, size), np.full(size, key, np.uint64)
    return permute(np.arange(size), sizes, keys)


@pytest.mark.parametrize("size", [*range(1, 70), 127, 128, 129, 1000, 4095, 4096, 4097, 65537])
def test_permute_is_a_permutation(size):
    for key in (0, 1, 2**64 - 1, 0x9E3779B97F4A7C15):
        np.testing.assert_array_equal(np.sort(permutation(size, key)), np.arange(size))


def test_permutations_of_rows_are_evaluated_alone():
    sizes, keys = np.array([10, 1000, 10, 77]), np.array([5, 6, 5, 7], np.uint64)
    together = permute(np.array([3, 999, 4, 0]), sizes, keys)
    alone = [permutation(n, k)[i] for n, k, i in zip(sizes, keys, [3, 999, 4, 0], strict=True)]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("size", [5, 8, 23])
def test_permutations_send_every_index_everywhere(size):
    """Over many keys, each position is equally likely, and neighbours are separated."""
    keys = Draws(0, "").keys("k", np.arange(40_000))
    sizes = np.full(len(keys), size)
    images = [permute(np.full(len(keys), i), sizes, keys) for i in range(size)]
    for image in images:
        assert_uniform(np.bincount(image, minlength=size))
    adjacent = (images[0] + 1) % size == images[1]
    assert_rate(adjacent.sum(), len(keys), 1 / (size - 1), sigmas=6)


def test_a_large_permutation_leaves_no_order():
    order = permutation(100_003, 12345)
    index = np.arange(len(order))
    assert abs(np.corrcoef(index, order)[0, 1]) < 5 / np.sqrt(len(order))
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 5 / np.sqrt(len(order))
    assert (np.diff(order) == 1).sum() < 12  # 1 on average
