"""Bucket lengths, and the batches that go into them."""

import itertools

import numpy as np
import pytest

from bertjax.tasks.buckets import (
    Epochs,
    choose_lengths,
    choose_rows,
    fitting,
)


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
    epochs = Epochs(lengths, buckets, batch_size, epochs=2, seed=1, rows=3)
    assert epochs.steps == 2 * epochs.steps_per_epoch == 2 * -(-examples // batch_size)
    orders = []
    for epoch in range(2):
        steps = range(epoch * epochs.steps_per_epoch, (epoch + 1) * epochs.steps_per_epoch)
        batches = [epochs.batch(step) for step in steps]
        assert [len(members) for members in batches[:-1]] == [batch_size] * (len(batches) - 1)
        orders.append(np.concatenate(batches))
        for step, members in zip(steps, batches, strict=True):
            slices = epochs.microbatches(step)
            np.testing.assert_array_equal(np.concatenate([rows for rows, _ in slices]), members)
            assert {len(rows) for rows, _ in slices[:-1]} <= {3}
            for rows, bucket in slices:
                assert bucket == fitting(buckets, lengths[rows].max())
        assert sorted(orders[-1]) == list(range(examples))
    assert examples < 10 or (orders[0] != orders[1]).any()


def test_a_batch_is_a_function_of_seed_and_step():
    lengths = np.random.default_rng(0).integers(3, 60, 300)
    one, same, other = (Epochs(lengths, (64,), 16, 3, seed, rows=4) for seed in (4, 4, 5))
    backwards = [same.batch(step).tolist() for step in reversed(range(one.steps))]
    forwards = [one.batch(step).tolist() for step in range(one.steps)]
    assert forwards == backwards[::-1]
    assert forwards != [other.batch(step).tolist() for step in range(one.steps)]


def test_batches_are_random_and_their_microbatches_of_like_length():
    """This saves half of the computation, compared to batches padded to their longest example."""
    lengths = np.minimum(np.random.default_rng(0).geometric(0.04, 4000) + 3, 128)
    epochs = Epochs(lengths, choose_lengths(lengths, 128, 5), 32, epochs=1, seed=0, rows=8)
    batches = [lengths[epochs.batch(step)] for step in range(epochs.steps)]
    # The mean of 32 random lengths has 1/32 of their variance; 125 of them determine it to 13 %.
    # (Batches of 16 sorted examples would vary 30 times as much.)
    assert np.var(np.mean(batches, axis=1)) == pytest.approx(np.var(lengths) / 32, rel=0.39)
    assert epochs.tokens < 0.55 * 32 * np.mean(np.max(batches, axis=1))
    whole = Epochs(lengths, (128,), 32, epochs=1, seed=0, rows=32)
    assert whole.tokens == 32 * 128


LENGTHS = np.minimum(np.random.default_rng(0).geometric(0.04, 4000) + 3, 128)


def test_rows_of_parts_are_those_of_the_least_work():
    buckets = choose_lengths(LENGTHS, 128, 5)

    def work(rows, cost):
        epochs = Epochs(LENGTHS, buckets, 24, 1, seed=3, rows=rows)
        microbatches = np.mean([len(epochs.microbatches(step)) for step in range(epochs.steps)])
        return epochs.tokens + microbatches * cost

    for cost in (0, 20, 60, 200, 2000):
        chosen = choose_rows(LENGTHS, buckets, 24, devices=1, most=9999, cost=cost)
        best = min(work(rows, cost) for rows in range(1, 25))
        assert work(chosen, cost) == pytest.approx(best, rel=0.02)  # for other random batches


@pytest.mark.parametrize(
    ("batch_size", "devices", "most", "cost", "rows"),
    [
        (32, 1, 9999, 0, 1),
        (32, 8, 9999, 0, 8),
        (12, 8, 9999, 0, 8),
        (32, 1, 9999, 10**6, 32),
        (32, 8, 9999, 10**6, 32),
        (30, 4, 9999, 10**6, 32),
        (32, 1, 5 * 128, 10**6, 5),
        (32, 8, 2 * 128, 10**6, 16),
        (32, 1, 100, 10**6, 1),  # one example exceeds the limit
    ],
)
def test_rows_of_parts_divide_over_the_devices_and_fit(batch_size, devices, most, cost, rows):
    options = dict(devices=devices, most=most, cost=cost)
    assert choose_rows(LENGTHS, (32, 64, 128), batch_size, **options) == rows
    few = choose_rows(LENGTHS[:3], (32, 64, 128), batch_size, **options)
    assert few % devices == 0 < few <= batch_size + devices
