"""Parameters that are gathered for a step, and the gradients that are spread again."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.models.encoders.presets import BertSpec
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.training.reshard import reshard_between
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import make_placement
from bertjax.training.state import sharded_for_use

pytestmark = pytest.mark.devices(8)
# Shape, and how it is stored and used: shares of the first, the last and a middle dimension, a
# vector that is whole, and heads that are split over `model`.
CASES = {
    "first": ((8, 3, 2, 5), ("data", None, None, None), (None,) * 4, "8,30"),
    "last": ((2, 5, 8), (None, None, "data"), (), "10,8"),  # JAX shortens specs
    "middle": ((3, 8, 5), (None, "data", None), (None,) * 3, "3,8,5"),
    "vector": ((7,), (None,), (None,), ""),
    "heads": ((8, 3, 2, 5), ("data", None, "model", None), (None, None, "model", None), "8,3,1,5"),
}


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    shape, stored, used, gathered = CASES[name]
    mesh = make_mesh(MeshSpec(data=4, model=2))
    here, there = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (stored, used))
    whole = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    param = jax.device_put(whole, here)
    moves = reshard_between(
        {"w": here}, {"w": jax.ShapeDtypeStruct(shape, "float32", sharding=there)}
    )
    gather = jax.jit(moves.gather)
    weight = gather({"w": param})["w"]
    np.testing.assert_array_equal(weight, whole)
    assert weight.sharding.is_equivalent_to(there, len(shape))
    # What the devices send has its whole dimensions joined.
    text = gather.lower({"w": param}).compile().as_text()
    assert set(re.findall(r"f32\[([\d,]+)\]\S* all-gather\(", text)) == {gathered} - {""}
    back = jax.jit(moves.scatter)({"w": weight})["w"]
    np.testing.assert_array_equal(back, whole)
    assert back.sharding.is_equivalent_to(here, len(shape))


def test_small_shares_are_gathered_together():
    """Those of one shape, if they have enough bytes; each weight arrives as it would alone."""
    mesh = make_mesh(MeshSpec(data=4, model=2))
    heads = ("data", None, "model"), (None, None, "model")
    shares = {
        **{f"layer_{i}": ((8, 3, 2, 5), *heads) for i in range(3)},  # 3 x 60 bytes in bfloat16
        "along_another_axis": ((8, 3, 2, 5), (None, None, None, None), (None, None, "model")),
        **{f"without_room_{i}": ((8, 6), ("data", "model"), (None, "model")) for i in range(15)},
        **{f"too_few_{i}": ((3, 8, 5), (None, "data"), ()) for i in range(2)},  # 2 x 60 bytes
        **{f"large_{i}": ((40, 9), ("data",), ()) for i in range(2)},  # 2 x 180 bytes
        **{f"vector_{i}": ((50,), (), ()) for i in range(2)},  # 2 x 100 bytes, which are not moved
    }
    random = np.random.default_rng(1)
    stored, used, params = {}, {}, {}
    for name, (shape, here, there) in shares.items():
        stored[name], sharding = (NamedSharding(mesh, PartitionSpec(*s)) for s in (here, there))
        used[name] = jax.ShapeDtypeStruct(shape, "bfloat16", sharding=sharding)
        params[name] = jax.device_put(random.normal(size=shape).astype(np.float32), stored[name])
    gather = jax.jit(reshard_between(stored, used, small=180).gather)
    alone = jax.jit(reshard_between(stored, used).gather)(params)
    for name, weight in gather(params).items():
        np.testing.assert_array_equal(weight, alone[name])
        assert weight.sharding.is_equivalent_to(used[name].sharding, weight.ndim)
    # XLA:CPU may gather bfloat16 in float32.
    text = gather.lower(params).compile().as_text()
    gathered = re.findall(r"\w+\[([\d,]+)\]\S* all-gather\(", text)
    assert sorted(gathered) == sorted(["8,9,1,5", *15 * ["8,3"], *2 * ["3,8,5"], *2 * ["40,9"]])


def test_a_gathered_weight_has_the_dtype_of_its_products():
    mesh = make_mesh(MeshSpec(data=1, model=1), jax.devices()[:1])
    here = NamedSharding(mesh, PartitionSpec(None))
    weights = {"w": jax.ShapeDtypeStruct((3,), "bfloat16", sharding=here)}
    moves = reshard_between({"w": here}, weights)
    found = moves.gather({"w": jnp.float32([1 + 2**-12, 2, 3])})["w"]
    assert found.dtype == jnp.bfloat16 and found[0] == 1
    assert moves.scatter({"w": found})["w"].dtype == jnp.float32


@pytest.mark.parametrize(
    "compute, summed, matrices",
    [
        ("bfloat16", "bfloat16", "bfloat16"),
        ("bfloat16", "float32", "float32"),
        ("float32", "float32", "float32"),
    ],
)
def test_which_weights_are_gathered_in_bfloat16(compute, summed, matrices):
    """Those of products, if both these and the sums of their gradients are in bfloat16."""
    spec = BertSpec.named("tiny", compute_dtype=compute, gradient_dtype=summed)
    init = MaskedLMNextSentence().model(spec).init
    where = make_placement(MeshSpec(data=8, model=1), "zero1")
    found = flatten_dict(sharded_for_use(jax.eval_shape(init, jax.random.key(0)), where), sep="/")
    for path, leaf in found.items():
        # Logits of classes are computed in float32.
        narrow = re.search(r"(?<!next_sentence_head/)kernel$|embeddings/token$", path)
        assert leaf.dtype == (matrices if narrow else "float32"), path
        assert leaf.sharding.is_fully_replicated, path
