"""Tokens that are read one by one, with a cache, are read as in the whole text."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from bertjax.models.encoders.registry import ENCODERS, make_encoder
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

LENGTH = 11
SIZES = dict(
    vocab_size=23,
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=LENGTH,
    causal=True,
)
OF_A_FAMILY = {
    "modernbert": dict(local_attention=6, global_attn_every_n_layers=2),  # 3 tokens back
    "electra": dict(embedding_size=5),
    "eurobert": dict(num_key_value_heads=1),
}
NAMES = [name for name, family in ENCODERS.items() if family.empty_cache]


@pytest.mark.parametrize(
    "name", others_slow(NAMES, "roberta", "modernbert", "eurobert", "transfo-xl")
)
def test_one_by_one(name):
    spec, rng = ENCODERS[name].spec(**SIZES | OF_A_FAMILY.get(name, {})), np.random.default_rng(5)
    encoder = make_encoder(spec)
    whole = {key: np.zeros((2, LENGTH), np.int32) for key in ENCODERS[name].text_inputs}
    whole |= {"input_ids": rng.integers(2, 23, (2, LENGTH)), "input_mask": np.ones((2, LENGTH))}
    init = partial(encoder.init, deterministic=True)
    shapes = jax.eval_shape(init, jax.random.key(0), whole)["params"]
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), meta.unbox(shapes))

    @jax.jit
    def both(params):
        def read(cache, step):
            place = jnp.stack([step, jnp.maximum(step - 1, 0)])[:, None]  # one row is After
            inputs = {key: jnp.take_along_axis(x, place, 1) for key, x in whole.items()}
            inputs["input_mask"] = (jnp.arange(LENGTH) <= place).astype(jnp.int32)
            variables = {"params": params, "cache": cache}
            vectors, changed = encoder.apply(
                variables, inputs, deterministic=True, mutable=["cache"]
            )
            return changed["cache"], vectors[:, 0]

        steps, cache = jnp.arange(LENGTH), ENCODERS[name].empty_cache(spec, 2, LENGTH)[name]
        vectors = jax.lax.scan(read, cache, steps)[1]
        return vectors, encoder.apply({"params": params}, whole, deterministic=True)

    vectors, expected = map(np.asarray, both(params))
    assert_close(vectors[:, 0], expected[0], terms=2048)
    assert_close(vectors[1:, 1], expected[1, :-1], terms=2048)
