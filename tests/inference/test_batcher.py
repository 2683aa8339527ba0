"""Batches of inference: each sequence once, the longest first, in the order of the launches."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bertjax.inference.batcher import Batcher, in_order, in_order_of_length
from bertjax.inference.rows import Column, Columns
from bertjax.tasks.buckets import fitting
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout

BUCKETS, ROWS = (16, 40, 64), {16: 9, 40: 4, 64: 3}


def test_each_sequence_once_the_longest_first():
    lengths = np.random.default_rng(0).integers(3, 64, 101)
    batches = list(in_order_of_length(lengths, BUCKETS, ROWS.get))
    assert sorted(np.concatenate([members for members, _ in batches])) == list(range(101))
    in_order = lengths[np.concatenate([members for members, _ in batches])]
    assert (np.diff(in_order) <= 0).all()
    for members, bucket in batches[:-1]:
        assert len(members) == ROWS[bucket], "only the last batch is not full"
        assert fitting(BUCKETS, lengths[members].max()) == bucket
    assert {bucket for _, bucket in batches} == set(BUCKETS)


def test_sequences_in_their_order():
    batches = list(in_order(np.array([3, 30, 9, 12, 64, 40, 1]), BUCKETS, 3))
    assert [(members.tolist(), bucket) for members, bucket in batches] == [
        ([0, 1, 2], 40),
        ([3, 4, 5], 64),
        ([6], 16),
    ]


@pytest.mark.devices(8)
@pytest.mark.parametrize("devices", [1, 8])
def test_outputs_come_with_their_sequences(devices):
    placement = Placement(make_mesh(MeshSpec(), jax.devices()[:devices]), sharding_layout("data"))
    batcher = Batcher(placement, batch_tokens=40)
    lengths, launched = np.array([3, 30, 9, 12, 5, 40, 1]), []

    def batch(numbers, rows, bucket):
        launched.append((rows, bucket))
        columns = Columns({"numbers": Column(np.arange(7)[:, None], width=1)})
        return {"numbers": columns.batch(numbers, rows, bucket)["numbers"]}

    found, total = {}, len(list(in_order_of_length(lengths, BUCKETS, batcher.rows)))
    assert total == (1 if devices == 8 else 5)
    rows, counted = SimpleNamespace(lengths=lengths, batch=batch), []
    progress = SimpleNamespace(update=counted.append)
    batches = batcher.predict(
        lambda batch: batch["numbers"] * 10, rows, BUCKETS, size=batcher.rows, progress=progress
    )
    for place, (numbers, outputs) in enumerate(batches):
        assert len(launched) == min(place + 2, total), "one batch is launched ahead"
        found |= dict(zip(numbers.tolist(), outputs[:, 0].tolist(), strict=True))
    assert found == {number: number * 10 for number in range(7)}
    assert launched[0] == (devices, 40) and sum(counted) == 7
    assert batcher.rows(10) == 4 * devices and batcher.rows(10, examples=devices + 1) == 2 * devices
    assert batcher.rows(1000) == devices
