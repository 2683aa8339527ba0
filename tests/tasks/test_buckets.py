"""Bucket lengths, and the batches that go into them."""

import itertools

import numpy as np
import pytest

from bertjax.tasks.buckets import Epochs, choose_lengths, fitting, in_order_of_length


def _padded(buckets: tuple[int, ...], lengths: np.ndarray) -> int:
    return sum(fitting(buckets, int(length)) for length in lengths)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_no_other_buckets_have_less_padding(most, seed):
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.geometric(0.05, 200) + 2, 61)
    buckets = choose_lengths(lengths, 61, most)
    candidates = [*range(8, 61, 8), 61]
    top = next(c for c in candidates if c >= lengths.max())
    below = [c for c in candidates if c < top]
    best = min(
        _padded((*some, top), lengths)
        for count in range(most)
        for some in itertools.combinations(below, count)
    )
    assert _padded(buckets, lengths) == best
    assert len(buckets) <= most and list(buckets) == sorted(set(buckets))


def test_the_last_bucket_is_no_longer_than_the_longest():
    assert choose_lengths(np.array([5, 30]), 128, 1) == (32,)
    assert choose_lengths(np.array([5, 30]), 30, 2) == (8, 30)
    assert choose_lengths(np.array([7]), 512, 5) == (8,)


@pytest.mark.parametrize(("examples", "batch_size"), [(1003, 7), (64, 32), (5, 8)])
def test_each_example_comes_once_an_epoch(examples, batch_size):
    lengths = np.random.default_rng(0).integers(3, 60, examples)
    buckets = choose_lengths(lengths, 64, 3)
    epochs = Epochs(lengths, buckets, batch_size, epochs=2, seed=1)
    assert epochs.steps == 2 * epochs.steps_per_epoch == 2 * -(-examples // batch_size)
    orders = []
    for epoch in range(2):
        steps = range(epoch * epochs.steps_per_epoch, (epoch + 1) * epochs.steps_per_epoch)
        batches = [epochs.batch(step) for step in steps]
        for members, bucket in batches:
            assert bucket == fitting(buckets, lengths[members].max())
        assert sum(len(members) < batch_size for members, _ in batches) <= 1
        orders.append(np.concatenate([members for members, _ in batches]))
        assert sorted(orders[-1]) == list(range(examples))
    assert examples < 10 or (orders[0] != orders[1]).any()


def test_a_batch_is_a_function_of_seed_and_step():
    lengths = np.random.default_rng(0).integers(3, 60, 300)
    one, same, other = (Epochs(lengths, (64,), 16, epochs=3, seed=seed) for seed in (4, 4, 5))
    backwards = [same.batch(step)[0].tolist() for step in reversed(range(one.steps))]
    forwards = [one.batch(step)[0].tolist() for step in range(one.steps)]
    assert forwards == backwards[::-1]
    assert forwards != [other.batch(step)[0].tolist() for step in range(one.steps)]


def test_batches_are_of_like_length():
    """Which saves a third of what random batches would compute, each padded to its longest."""
    lengths = np.minimum(np.random.default_rng(0).geometric(0.04, 4000) + 3, 128)
    epochs = Epochs(lengths, choose_lengths(lengths, 128, 5), 32, epochs=1, seed=0)
    computed = 32 * epochs.mean_length * epochs.steps_per_epoch
    order = np.random.default_rng(1).permutation(len(lengths)).reshape(-1, 32)
    assert computed < 0.67 * 32 * lengths[order].max(1).sum()


def test_prediction_has_each_example_once_the_longest_first():
    lengths = np.random.default_rng(0).integers(3, 64, 101)
    buckets = (16, 40, 64)
    batches = in_order_of_length(lengths, buckets, {16: 9, 40: 4, 64: 3})
    assert sorted(np.concatenate([members for members, _ in batches])) == list(range(101))
    for members, bucket in batches:
        assert len(members) <= {16: 9, 40: 4, 64: 3}[bucket]
        assert {fitting(buckets, length) for length in lengths[members]} == {bucket}
    assert [bucket for _, bucket in batches] == sorted((b for _, b in batches), reverse=True)
