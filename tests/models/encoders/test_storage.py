"""Stacked layers and padded vocabularies store the same model."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.fields import TEXT
from bertjax.models.encoders.storage import from_canonical, to_canonical
from bertjax.models.encoders.transformer import Transformer
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

STORED = {
    "canonical": {},
    "scanned": {"scan_layers": True},
    "padded": {"vocab_multiple": 64},
    "both": {"scan_layers": True, "vocab_multiple": 64},
}


def _random_params(spec):
    init = partial(PreTrainingModel(spec).init, deterministic=True)
    params = jax.eval_shape(init, jax.random.key(0), text_inputs(spec, B=1, S=5))
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda leaf: rng.normal(0.5, 0.2, leaf.shape).astype(np.float32),
        nn.unbox(params["params"]),
    )


@pytest.mark.parametrize("name", others_slow(STORED, "canonical", "scanned", "padded"))
def test_write_then_read(spec, name):
    canonical, switches = _random_params(spec), STORED[name]
    stored = from_canonical(canonical, dataclasses.replace(spec, **switches))
    again = to_canonical(stored, dataclasses.replace(spec, **switches))
    again, canonical = flatten_dict(again, sep="/"), flatten_dict(canonical, sep="/")
    assert again.keys() == canonical.keys()
    for name, leaf in canonical.items():
        assert leaf.tobytes() == again[name].tobytes(), name


@pytest.mark.parametrize("switches", STORED.values(), ids=STORED)
def test_the_model_stays_the_same(spec, make_batch, switches):
    canonical, batch = _random_params(spec), make_batch()
    inputs = {name: batch[name] for name in TEXT}

    def logits(spec, params):
        model = PreTrainingModel(spec)
        return jax.jit(lambda p: model.apply({"params": p}, inputs, deterministic=True))(params)

    other = dataclasses.replace(spec, **switches)
    wanted, found = logits(spec, canonical), logits(other, from_canonical(canonical, other))
    result = {name: np.asarray(found[name])[..., : wanted[name].shape[-1]] for name in wanted}
    assert_close(result, wanted)


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("remat", ["none", "layer"])
def test_hidden_states(spec, make_batch, scan_layers, remat):
    """Each is the output of a model with that many layers; the last is the sequence output."""
    canonical, batch = _random_params(spec)["bert"], make_batch()
    inputs = {name: batch[name] for name in TEXT}
    other = dataclasses.replace(spec, scan_layers=scan_layers, remat=remat)
    params = from_canonical({"bert": canonical}, other)["bert"]

    @jax.jit
    def states(params):
        return Transformer(other).apply(
            {"params": params}, inputs, deterministic=True, method="hidden_states"
        )

    found = states(params)
    assert len(found) == spec.num_hidden_layers + 1
    for layers in range(1, spec.num_hidden_layers + 1):
        shallow = Transformer(dataclasses.replace(spec, num_hidden_layers=layers))
        wanted = jax.jit(lambda p, m=shallow: m.apply({"params": p}, inputs, deterministic=True))
        assert_close(found[layers], wanted(canonical))
    assert not np.allclose(found[0], found[1], atol=0.1)
