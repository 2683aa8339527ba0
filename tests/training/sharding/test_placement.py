"""The rows of batches, and the shardings of trees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import PartitionSpec as P

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout

pytestmark = pytest.mark.devices(8)

GRIDS = [(8, 1), (4, 2), (2, 4), (1, 8)]


def _placement(data: int, model: int, name: str = "tensor") -> Placement:
    return Placement(make_mesh(MeshSpec(data, model)), sharding_layout(name))


@pytest.mark.parametrize("grid", GRIDS)
def test_one_process_holds_every_row(grid):
    assert _placement(*grid).host_rows(24) == slice(0, 24)


@pytest.mark.parametrize("grid", GRIDS)
def test_put_gives_each_device_its_rows(grid):
    placement = _placement(*grid)
    ids = np.arange(24 * 5, dtype=np.int32).reshape(24, 5)
    labels = np.arange(24, dtype=np.int32)
    asked = []

    def make(rows):
        asked.append(rows)
        return {"ids": ids[rows], "labels": labels[rows]}

    batch = placement.put(make, 24)
    assert asked == [slice(0, 24)]
    np.testing.assert_array_equal(batch["ids"], ids)
    np.testing.assert_array_equal(batch["labels"], labels)
    each = 24 // grid[0]
    for row, devices in enumerate(placement.mesh.devices):
        held = slice(row * each, (row + 1) * each)
        for shard in batch["ids"].addressable_shards:
            if shard.device in devices:
                np.testing.assert_array_equal(shard.data, ids[held])
    assert batch["labels"].sharding.spec == P("data")


@pytest.mark.parametrize("size", [12, 7, 1])
def test_a_batch_that_does_not_divide(size):
    message = f"a batch of {size} sequences does not divide over 8 devices.*multiples of 8"
    with pytest.raises(InputError, match=message):
        _placement(8, 1).host_rows(size)


def _boxed(shape, names):
    value = jax.ShapeDtypeStruct(shape, jnp.float32)
    return nn.LogicallyPartitioned(value, names=names)


def test_shardings_of_a_tree():
    placement = _placement(2, 4)
    tree = {
        "kernel": _boxed((6, 8), (axes.EMBED, axes.MLP)),
        "bias": _boxed((6,), (axes.EMBED,)),
        "count": jax.ShapeDtypeStruct((), jnp.int32),
    }
    shardings = placement.shardings(tree)
    assert {name: s.spec for name, s in shardings.items()} == {
        "kernel": P(None, "model"),
        "bias": P(None),
        "count": P(),
    }
    assert {s.mesh for s in shardings.values()} == {placement.mesh}


def test_a_dimension_that_does_not_divide_is_named():
    with pytest.raises(InputError, match=r"'dense'.*mlp = 6 does not divide over the 4 devices"):
        _placement(2, 4).shardings({"dense": _boxed((8, 6), (axes.EMBED, axes.MLP))})
    with pytest.raises(InputError, match=r"vocab = 97 .*: set config.model.vocab_multiple"):
        _placement(2, 4).shardings({"token": _boxed((97, 8), (axes.VOCAB, axes.EMBED))})
