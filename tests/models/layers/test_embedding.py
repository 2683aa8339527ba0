"""The look-up in the table of token embeddings, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.models.layers.embedding import embedding_lookup
from tests.helpers.closeness import assert_close

V, D = 7, 5


def test_it_is_a_look_up_with_its_gradient():
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(V, D)), jnp.float32)
    ids = rng.integers(0, V - 1, (3, 4))
    weights = rng.normal(size=(3, 4, D)).astype(np.float32)

    def total(table):
        rows = embedding_lookup(table, ids)
        return (rows * weights).sum(), rows

    gradient, rows = jax.jit(jax.grad(total, has_aux=True))(table)
    np.testing.assert_array_equal(rows, np.asarray(table)[ids])
    expected = np.zeros((V, D))
    np.add.at(expected, ids, weights)
    assert_close(gradient, expected)
    np.testing.assert_array_equal(gradient[V - 1], 0)  # a token that is not there


def test_the_gradient_of_a_frequent_token_is_summed_in_float32():
    """A sum in bfloat16 would stop growing at 2, where 0.01 is less than half of its last place."""
    table, ids = np.ones((V, D), jnp.bfloat16), np.full(1000, 3)

    @jax.jit
    def rows_and_gradient(table):
        rows, pull = jax.vjp(lambda table: embedding_lookup(table, ids), table)
        return rows, *pull(jnp.full((1000, D), 0.01))

    rows, gradient = rows_and_gradient(table)
    assert rows.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(gradient)[3], 10.0, rtol=2**-8)
    np.testing.assert_array_equal(np.float32(gradient)[:3], 0)
