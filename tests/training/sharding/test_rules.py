"""Layouts: the sharding of every parameter, and invalid names."""

import jax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from jax.sharding import PartitionSpec as P

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import LAYOUTS, partition_spec, sharding_layout

D, M = "data", "model"
# Parameter -> its sharding in layouts fsdp and tensor; in data and zero1 no parameter is split.
LAYER = {
    "attention/qkv/kernel": (P(D, None, None, None), P(None, None, M, None)),
    "attention/qkv/bias": (P(None, None, None), P(None, M, None)),
    "attention/output/kernel": (P(None, None, D), P(M, None, None)),
    "attention/output/bias": (P(D), P(None)),
    "attention_norm/scale": (P(D), P(None)),
    "attention_norm/bias": (P(D), P(None)),
    "intermediate/kernel": (P(D, None), P(None, M)),
    "intermediate/bias": (P(None), P(M)),
    "output/kernel": (P(None, D), P(M, None)),
    "output/bias": (P(D), P(None)),
    "output_norm/scale": (P(D), P(None)),
    "output_norm/bias": (P(D), P(None)),
}
OUTSIDE = {
    "bert/embeddings/token": (P(None, D), P(M, None)),
    "bert/embeddings/position": (P(None, D), P(None, None)),
    "bert/embeddings/segment": (P(None, D), P(None, None)),
    "bert/embeddings/norm/scale": (P(D), P(None)),
    "bert/embeddings/norm/bias": (P(D), P(None)),
    "pooler/dense/kernel": (P(D, None), P(None, None)),
    "pooler/dense/bias": (P(None), P(None)),
    "masked_lm/transform/kernel": (P(D, None), P(None, None)),
    "masked_lm/transform/bias": (P(None), P(None)),
    "masked_lm/norm/scale": (P(None), P(None)),
    "masked_lm/norm/bias": (P(None), P(None)),
    "masked_lm/bias": (P(None), P(M)),
    "next_sentence_head/kernel": (P(None, None), P(None, None)),
    "next_sentence_head/bias": (P(None), P(None)),
}


def _expected(name: str, scanned: bool) -> dict[str, P]:
    layers = {
        f"bert/encoder/layer_{i}/{path}": specs for i in range(2) for path, specs in LAYER.items()
    }
    if scanned:
        layers = {
            f"bert/encoder/layers/{path}": [P(None, *spec) for spec in specs]
            for path, specs in LAYER.items()
        }
    table = {**OUTSIDE, **layers}
    both = {
        path: P(*(a or b for a, b in zip(*specs, strict=True))) for path, specs in table.items()
    }
    whole = {path: P(*[None] * len(specs[0])) for path, specs in table.items()}
    fsdp, tensor = ({path: specs[i] for path, specs in table.items()} for i in range(2))
    vocabulary = ("bert/embeddings/token", "masked_lm/bias")
    sequence = whole | {path: tensor[path] for path in vocabulary}
    return {
        **{"data": whole, "zero1": whole, "fsdp": fsdp},
        "sequence": sequence,
        **{"tensor": tensor, "tensor_zero1": tensor, "tensor_fsdp": both},
    }[name]


def _boxed(scanned: bool):
    """The parameters with their logical axes, as shapes."""
    model = PreTrainingModel(BertSpec.named("tiny", scan_layers=scanned, vocab_multiple=8))
    return jax.eval_shape(
        lambda inputs: model.init(jax.random.key(0), inputs, deterministic=True)["params"],
        text_inputs(model.spec, B=1, S=8),
    )


# The same where the devices store shares, in layouts zero1 and tensor_zero1. Vectors are whole.
SHARES = {
    "attention/qkv/kernel": (P(D, None, None, None), P(D, None, M, None)),
    "attention/output/kernel": (P(None, None, D), P(M, None, D)),
    "intermediate/kernel": (P(None, D), P(D, M)),
    "intermediate/bias": (P(None), P(M)),
    "attention/qkv/bias": (P(None, None, None), P(None, M, None)),
    "output/kernel": (P(D, None), P(M, D)),
    "output_norm/scale": (P(None), P(None)),
}
SHARES_OUTSIDE = {
    "bert/embeddings/token": (P(D, None), P(M, D)),
    "bert/embeddings/position": (P(D, None), P(D, None)),
    "pooler/dense/kernel": (P(None, D), P(None, D)),
    "masked_lm/transform/kernel": (P(None, D), P(None, D)),
    "masked_lm/bias": (P(None), P(M)),
}


@pytest.mark.devices(8)
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("name, column", [("zero1", 0), ("tensor_zero1", 1)])
def test_where_shares_are_stored(name, column, scanned):
    boxed = _boxed(scanned)
    placement = Placement(make_mesh(MeshSpec(data=4, model=2)), sharding_layout(name))
    found = {
        path: sharding.spec
        for path, sharding in flatten_dict(placement.shardings(boxed, stored=True), sep="/").items()
    }
    prefix = "bert/encoder/layers" if scanned else "bert/encoder/layer_1"
    for path, specs in SHARES.items():
        expected = P(None, *specs[column]) if scanned else specs[column]
        assert found[f"{prefix}/{path}"] == expected, path
    for path, specs in SHARES_OUTSIDE.items():
        assert found[path] == specs[column], path


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_place_of_every_parameter(name, scanned):
    specs = jax.tree.map(
        lambda leaf: partition_spec(leaf.names, LAYOUTS[name].rules),
        _boxed(scanned),
        is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned),
    )
    assert flatten_dict(specs, sep="/") == _expected(name, scanned)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_places_every_axis_and_no_other(name):
    assert LAYOUTS[name].rules.keys() == axes.ALL
    assert set(LAYOUTS[name].rules.values()) <= {"data", "model", None}


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_the_batch_of_a_batch_is_split(name):
    """And in the layout that is made for it, the length."""
    length = "model" if name == "sequence" else None
    spec = partition_spec((axes.BATCH, axes.LENGTH), sharding_layout(name).rules)
    assert spec == P("data", length)


def test_an_axis_may_have_no_name():
    rules = sharding_layout("tensor").rules
    assert partition_spec((axes.BATCH, None, axes.MLP), rules) == P("data", None, "model")
    assert partition_spec((), rules) == P()


def test_an_unknown_layout_is_named():
    with pytest.raises(InputError, match="layout='zero': must be one of data, zero1, fsdp, tensor"):
        sharding_layout("zero")


def test_an_unknown_axis_is_named():
    with pytest.raises(ValueError, match="unknown logical axis 'depth'"):
        partition_spec((axes.BATCH, "depth"), sharding_layout("data").rules)


def test_one_mesh_axis_on_two_dimensions_is_refused():
    with pytest.raises(ValueError, match="one mesh axis on two dimensions: .*'data', 'data'"):
        partition_spec((axes.BATCH, axes.EMBED), sharding_layout("fsdp").rules)
