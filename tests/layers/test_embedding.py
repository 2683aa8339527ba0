"""The look-up in the table of token embeddings, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.layers.embedding import look_up

V, D = 7, 5


def test_it_is_a_look_up_with_its_gradient():
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(V, D)), jnp.float32)
    ids = jnp.asarray(rng.integers(0, V - 1, (3, 4)))
    weights = jnp.asarray(rng.normal(size=(3, 4, D)), jnp.float32)
    found, expected = (
        jax.value_and_grad(lambda table, rows=rows: (rows(table, ids) * weights).sum())(table)
        for rows in (look_up, lambda table, ids: table[ids])
    )
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[1][V - 1], 0)  # a token that is not there


def test_the_gradient_of_a_frequent_token_is_summed_in_float32():
    """A sum in bfloat16 would stop growing at 2, where 0.01 is less than half of its last place."""
    table, ids = jnp.ones((V, D), jnp.bfloat16), jnp.full((1000,), 3)
    rows, pull = jax.vjp(lambda table: look_up(table, ids), table)
    assert rows.dtype == jnp.float32
    (gradient,) = pull(jnp.full((1000, D), 0.01))
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(gradient[3]), 10.0, rtol=2**-8)
    np.testing.assert_array_equal(np.float32(gradient[:3]), 0)
