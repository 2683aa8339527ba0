"""Products, biases and activations, with the gradients written out for them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.base import axes
from bertjax.models.layers.activation import activation
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import Precision, add_bias, product
from bertjax.models.layers.norm import RMSNorm
from tests.helpers.closeness import assert_close


def _random(*shape):
    return jnp.asarray(np.random.default_rng(shape).normal(size=shape), jnp.float32)


def _integers(*shape):
    """Makes integers so small that no sum of their products is rounded in bfloat16."""
    return jnp.asarray(np.random.default_rng(shape).integers(-2, 3, shape), jnp.float32)


def _assert_same_pull(result, reference, *inputs, random=_random, dtype=np.float32):
    towards = random(*jax.eval_shape(reference, *inputs).shape)

    @partial(jax.jit, static_argnums=0)
    def value_and_pull(function, *inputs):
        value, pull = jax.vjp(function, *inputs)
        return value, pull(towards)

    found, expected = value_and_pull(result, *inputs), value_and_pull(reference, *inputs)
    assert [x.dtype for x in jax.tree.leaves(found)] == [x.dtype for x in jax.tree.leaves(expected)]
    assert_close(found, expected, dtype=dtype)


@pytest.mark.parametrize(
    "subscripts, x, kernel",
    [
        ("ai,io->ao", (5, 3), (3, 4)),
        ("abi,iopq->abopq", (2, 5, 3), (3, 2, 4, 6)),
        ("abij,ijo->abo", (2, 5, 3, 4), (3, 4, 7)),
        ("bpd,vd->bpv", (2, 5, 3), (7, 3)),
        ("ai,iop->aop", (5, 3), (3, 2, 4)),  # XLA's CPUs once refused its gradient in bfloat16
    ],
)
@pytest.mark.parametrize("compute, random", [("float32", _random), ("bfloat16", _integers)])
def test_product(subscripts, x, kernel, compute, random):
    _assert_same_pull(
        lambda x, kernel: product(subscripts, x, kernel, Precision(compute), "float32"),
        lambda x, kernel: jnp.einsum(subscripts, x, kernel),
        *(random(*x), random(*kernel)),
        random=random,
    )


def test_the_gradient_of_a_kernel_in_either_dtype():
    """The gradient is rounded when it leaves a device, or not; 4,096 rows show the difference."""
    x, kernel = _random(4096, 3), _random(3, 2)

    def gradient(dtype):
        def total(kernel):
            y = product("ai,io->ao", x, kernel, Precision("bfloat16", dtype), "bfloat16")
            return y.astype(jnp.float32).sum()

        return np.asarray(jax.jit(jax.grad(total))(kernel))

    exact = gradient("float32")
    expected = np.asarray(x).astype(jnp.bfloat16).astype(np.float64).sum(0)[:, None].repeat(2, 1)
    assert_close(exact, expected, terms=4096)
    rounded = gradient("bfloat16")
    assert exact.dtype == rounded.dtype == jnp.float32
    np.testing.assert_array_equal(rounded, exact.astype(jnp.bfloat16).astype(np.float32))
    assert (rounded != exact).any()


@pytest.mark.parametrize("outputs", [(7,), (3, 2, 5)])
def test_bias(outputs):
    _assert_same_pull(
        add_bias, lambda y, bias: y + bias, _random(4, 6, *outputs), _random(*outputs)
    )


FORMULAS = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": lambda x: x / (1 + jnp.exp(-x)),
    "relu": lambda x: jnp.where(x > 0, x, 0),
}


@pytest.mark.parametrize("keep_slope", [False, True])
@pytest.mark.parametrize("hidden_act", FORMULAS)
def test_activation(hidden_act, keep_slope):
    # It is computed in float64, because in float32 rounding differs and depends on flags.
    with jax.enable_x64(True):
        _assert_same_pull(
            lambda x: activation(hidden_act, x, keep_slope),
            FORMULAS[hidden_act],
            jnp.linspace(-9, 9, 181, dtype=jnp.float64),
            random=lambda *shape: np.random.default_rng(0).normal(size=shape),
            dtype=np.float64,
        )


def test_the_erf_form_in_bfloat16():
    """There it is computed by tanh, with errors below those of rounding."""
    numbers = [*np.linspace(-9, 9, 5001), -1e30, -100, -9.99, 9.99, 100, 1e30]
    x = jnp.asarray(numbers, jnp.bfloat16)
    with_slope = jax.value_and_grad(partial(activation, "gelu"))
    y, slope = jax.jit(jax.vmap(with_slope))(x)
    assert y.dtype == slope.dtype == jnp.bfloat16
    with jax.enable_x64(True):
        wide = jnp.asarray(np.asarray(x, np.float64))
        of_erf = jax.value_and_grad(partial(jax.nn.gelu, approximate=False))
        exact, exact_slope = jax.jit(jax.vmap(of_erf))(wide)
    np.testing.assert_allclose(np.asarray(y, np.float64), exact, rtol=2**-8, atol=3e-5)
    np.testing.assert_allclose(np.asarray(slope, np.float64), exact_slope, rtol=2**-8, atol=6e-5)


def test_norm_by_the_root_mean_square():
    """The sum of squares of the second row has the size of eps; a mean is not subtracted."""
    module = RMSNorm(axes.EMBED, eps=1e-3)
    scale, x = _random(5), _random(3, 5) * jnp.array([[100.0], [0.02], [1.0]]) + 0.01
    _assert_same_pull(
        lambda x, scale: module.apply({"params": {"scale": scale}}, x),
        lambda x, scale: x / jnp.sqrt((x**2).sum(-1, keepdims=True) / 5 + 1e-3) * scale,
        *(x, scale),
    )
    narrow = x.astype(jnp.bfloat16)  # only the result is rounded
    wide = np.asarray(narrow, np.float64)
    wide *= scale / np.sqrt(np.square(wide).mean(-1, keepdims=True) + 1e-3)
    found = jax.jit(module.apply)({"params": {"scale": scale}}, narrow)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float64), wide, rtol=2**-8)


def test_rows_that_pad_the_vocabulary_are_never_predicted():
    x, table, bias = (np.ones(shape, np.float32) for shape in ((1, 2, 3), (7, 3), 7))
    decoded = jax.jit(partial(decode, vocab_size=5, precision=Precision()))
    found = np.asarray(decoded(x, table, bias))
    assert (found[..., :5] == 4).all() and (found[..., 5:] == np.finfo(np.float32).min).all()
