"""Activation functions, which keep only their input for the backward pass."""

import functools
from typing import Any

import jax
import jax.numpy as jnp


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def activation(spec: Any, x: jax.Array) -> jax.Array:
    """gelu, in its erf or its tanh form; of it only x is kept for the backward pass."""
    return _with_slope(spec, x)[0]


def _with_slope(spec: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    gelu = functools.partial(jax.nn.gelu, approximate=spec.hidden_act == "gelu_tanh")
    with jax.named_scope("activation"):
        return jax.jvp(gelu, (x,), (jnp.ones_like(x),))


activation.defvjp(
    lambda spec, x: (activation(spec, x), x),
    lambda spec, x, gradient: (_with_slope(spec, x)[1] * gradient,),
)
