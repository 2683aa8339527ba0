"""Forms of Adam that Optax does not have: BERT's without bias correction, and StableAdamW's."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def scale_by_adam_without_bias_correction(
    b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
    """m / (sqrt(v) + eps) with the raw moments, as in the reference's AdamWeightDecayOptimizer."""

    def update(
        updates: optax.Updates, state: optax.ScaleByAdamState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.ScaleByAdamState]:
        del params
        mu = optax.tree.update_moment(updates, state.mu, b1, 1)
        nu = optax.tree.update_moment(updates, state.nu, b2, 2)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, state._replace(count=optax.safe_increment(state.count), mu=mu, nu=nu)

    return optax.GradientTransformation(optax.scale_by_adam(b1, b2, eps).init, update)


def scale_by_stable_adam(
    b1: float, b2: float, eps: float, decay: optax.GradientTransformation
) -> optax.GradientTransformation:
    """The directions of StableAdamW (arXiv 2304.13013, algorithm 2).

    They are AdamW's (`decay` adds the decayed weights), divided in each tensor by max(1, RMS),
    where RMS is the root of the tensor's mean of g^2 / max(v, eps^2). So a gradient that is far
    greater than those before it moves the parameters no further than those did.
    """
    adamw = optax.chain(optax.scale_by_adam(b1, b2, eps), decay)

    def update(
        gradient: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Any]:
        directions, state = adamw.update(gradient, state, params)
        moments = state[0]
        second = optax.tree.bias_correction(moments.nu, b2, moments.count)

        def cut(direction: jax.Array, g: jax.Array, v: jax.Array) -> jax.Array:
            rms = jnp.sqrt(jnp.mean(jnp.square(g) / jnp.maximum(v, eps**2)))
            return direction / jnp.maximum(1.0, rms)

        return jax.tree.map(cut, directions, gradient, second), state

    return optax.GradientTransformation(adamw.init, update)
