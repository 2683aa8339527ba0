"""A family of encoders that `tests/encoders/toy_family.py` adds: its names and its config."""

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from tiny_run import tiny_config
from toy_family import ToySpec, register  # noqa: F401

from bertjax.base.errors import InputError
from bertjax.encoders.names import to_ours, to_theirs
from bertjax.encoders.registry import array_names
from bertjax.encoders.storage import from_plain, to_plain
from bertjax.heads.architectures import ARCHITECTURES
from bertjax.runs.recipe import Recipe

SPEC = ToySpec(vocab_size=37, hidden_size=12, num_attention_heads=3, vocab_multiple=8)
MODEL = dict(encoder="toy", size="toy", hidden_size=32, max_position_embeddings=64)


def _config(corpus, **changes):
    return tiny_config(corpus, **changes) | {"model": MODEL}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_its_names_cover_its_parameters(kind):
    module = ARCHITECTURES[kind].build(SPEC, 5)
    classes = 1 if "C" in ARCHITECTURES[kind].axes else 5
    ids = jax.ShapeDtypeStruct((2, 3, 7)[-len(ARCHITECTURES[kind].axes) :], "int32")

    def init(ids):
        return module.init(jax.random.key(0), ids, ids, ids, deterministic=True)["params"]

    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype),
        nn.unbox(jax.eval_shape(init, ids)),
    )
    plain = to_plain(params, SPEC)
    entries = array_names(ARCHITECTURES[kind].parts(SPEC), SPEC, classes)
    again = to_ours(to_theirs(plain, entries), entries, "test")
    assert flatten_dict(again).keys() == flatten_dict(plain).keys()
    jax.tree.map(np.testing.assert_array_equal, again, plain)
    padded = from_plain(again, SPEC)["toy"]["embeddings"]["token"]
    assert padded.shape == (40, 12) and not padded[37:].any()


def test_what_its_config_may_say(tiny_corpus):
    config = _config(tiny_corpus)
    spec = Recipe.from_config(config).spec(37)
    assert (spec.encoder, spec.hidden_size, spec.vocab_size) == ("toy", 32, 37)
    for key, value, message in (
        ("encoder", "toys", "config.model.encoder='toys': must be one of bert, modernbert, toy"),
        ("size", "large", "config.model: size='large': must be toy"),
        ("hidden_act", "relu", "config.model: hidden_act='relu': must be one of"),
        ("intermediate_size", 7, "config.model: .*unexpected keyword .*'intermediate_size'"),
        ("hidden_size", "32", "config.model.hidden_size='32': must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            Recipe.from_config(config | {"model": MODEL | {key: value}})
