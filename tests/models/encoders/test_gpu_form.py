"""A block as a GPU computes it: products apart, and activations again in the backward pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.attention import implementations
from bertjax.models.encoders import transformer
from bertjax.models.encoders.presets import BertSpec, DebertaV2Spec, NeoBertSpec
from bertjax.models.layers.dense import Dense, Precision
from tests.helpers.closeness import assert_close

SIZES = dict(vocab_size=40, hidden_size=16, num_attention_heads=2, num_hidden_layers=1)


# NeoBERT's feed-forward is gated, and DeBERTa's distances have queries and keys.
@pytest.mark.parametrize("preset", [BertSpec, NeoBertSpec, DebertaV2Spec])
def test_it_computes_the_same_function(monkeypatch, preset):
    module = transformer.Transformer(preset(**SIZES, intermediate_size=24))
    ids = np.random.default_rng(0).integers(40, size=(3, 11))
    inputs = {"input_ids": ids, "input_mask": np.arange(11) < np.array([[11], [4], [7]])}
    params = jax.jit(partial(module.init, deterministic=True))(jax.random.key(1), inputs)

    def both():
        def total(params):
            states = module.apply(params, inputs, deterministic=True)
            return jnp.sin(states).sum(), states

        step = jax.jit(jax.grad(total, has_aux=True))
        return step(params), "remat" in str(jax.make_jaxpr(total)(params))

    expected, again = both()
    assert not again
    for module_of in (transformer, implementations):
        monkeypatch.setattr(module_of, "platform", lambda: "gpu")
    found, again = both()
    assert_close(found, expected, share=0.01)
    assert again


def test_products_apart_are_the_parts_of_one():
    """With the same parameters: of the first axis of the outputs, each by a product."""
    x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 5, 7)), jnp.float32)
    sizes = {"embed": 7}, {"gate": 2, "mlp": 9}, jax.nn.initializers.normal(1.0)
    for bias in (True, False):
        rest = dict(use_bias=bias, bias_init=jax.nn.initializers.normal(1.0))
        one, apart = (Dense(*sizes, Precision(), split=apart, **rest) for apart in (False, True))
        params = one.init(jax.random.key(3), x)
        wanted, found = one.apply(params, x), apart.apply(params, x)
        assert_close(jnp.stack(found, 2), wanted)
