"""Muon for the matrices of layers and heads (arXiv 2502.16982), however these are stored."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonState

from bertjax.base import axes

# The sides of matrices that are not D, or are the second D. Axes that are on neither side (layers,
# query, key and value) count matrices, each of which is orthogonalized alone. A factor of an
# adapter has its rank on one side.
_SIDES = (axes.HEADS, axes.KV_HEADS, axes.HEAD_WIDTH, axes.MLP, axes.EMBED_OUT)

_MOMENTUM = 0.95
_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_RMS = 0.2  # of an update: about that of AdamW's, so one learning rate serves both (section 2.2)


def is_matrix(names: Sequence[str]) -> bool:
    """Whether a parameter with these logical axes has matrices of a layer or of a head."""
    return axes.RANK in names or axes.EMBED in names and any(side in names for side in _SIDES)


def of_matrices(names: Any) -> Any:
    """A tree of bool, True for matrices; `names` has a tuple of logical axes for each parameter."""
    return jax.tree.map(is_matrix, names, is_leaf=_is_names)


def scale_matrices_by_muon(names: Any, dtype: str) -> optax.GradientTransformation:
    """Orthogonalized momentum, scaled to AdamW's size; other parameters' updates pass unchanged.

    The Newton-Schulz iteration has the five steps and the coefficients of the first Muon (Jordan
    2024), with products in `dtype` (there bfloat16). The momentum is Nesterov's with 0.95, as
    there, and corrected for bias, as in Optax but not there: the first updates weight the gradient
    and those before it differently, and the sum of 40 updates differs from Jordan's by a few per
    cent. The state is that of Optax's `scale_by_muon`.
    """

    kept = jax.tree.map(
        lambda n: n if is_matrix(n) else optax.MaskedNode(), names, is_leaf=_is_names
    )

    def init(params: optax.Params) -> MuonState:
        momentum = optax.tree.zeros_like(params)
        return MuonState(jnp.zeros((), jnp.int32), momentum, jnp.asarray(_COEFFICIENTS))

    def update(
        updates: optax.Updates, state: MuonState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, MuonState]:
        del params
        count = optax.safe_increment(state.count)
        momentum = optax.tree.update_moment(updates, state.mu, _MOMENTUM, 1)
        ahead = optax.tree.bias_correction(momentum, _MOMENTUM, optax.safe_increment(count))
        now = optax.tree.bias_correction(updates, _MOMENTUM, count)

        def direction(names: Sequence[str], ahead: jax.Array, now: jax.Array) -> jax.Array:
            return _direction(_MOMENTUM * ahead + (1 - _MOMENTUM) * now, names, dtype)

        found = jax.tree.map(direction, kept, ahead, now, is_leaf=_is_names)
        return found, MuonState(count, momentum, state.ns_coeffs)

    return optax.masked(optax.GradientTransformation(init, update), of_matrices(names))


def _is_names(leaf: Any) -> bool:
    return type(leaf) is tuple  # optax.MaskedNode is a tuple of another type


def _direction(momentum: jax.Array, names: Sequence[str], dtype: str) -> jax.Array:
    """Each matrix of a parameter made orthogonal, and scaled to an RMS of about 0.2."""
    one_side = axes.RANK if axes.RANK in names else axes.EMBED
    rows, uncounted = names.index(one_side), (*_SIDES, axes.EMBED, axes.CLASSES)
    columns = [n for n, name in enumerate(names) if name in uncounted and name != one_side]
    counted = [place for place in range(momentum.ndim) if place not in (rows, *columns)]
    order = [*counted, rows, *columns]
    x = momentum.transpose(order)
    shape, width = x.shape, x.shape[len(counted)]
    x = x.reshape(-1, width, math.prod(shape[len(counted) + 1 :]))

    def one(x: jax.Array) -> jax.Array:
        return _orthogonal(x, dtype)

    # A CPU multiplies single matrices faster than a batch of them.
    each = functools.partial(jax.lax.map, one)
    x = jax.lax.platform_dependent(x, cpu=each, default=jax.vmap(one))
    # An orthogonal matrix of m x n has an RMS of 1 / sqrt(max(m, n)).
    x = _RMS * max(x.shape[1:]) ** 0.5 * x
    return x.reshape(shape).transpose([order.index(place) for place in range(momentum.ndim)])


def _orthogonal(x: jax.Array, dtype: str) -> jax.Array:
    """A matrix [m, n] with its singular values moved near 1, by Newton and Schulz; float32."""
    one, cubed, fifth = _COEFFICIENTS
    narrow = 0 if x.shape[0] <= x.shape[1] else 1
    x = (x / (jnp.linalg.norm(x) + 1e-8)).astype(dtype)
    for _ in range(_STEPS):
        gram = jnp.tensordot(x, x, (1 - narrow, 1 - narrow))
        factor = cubed * gram + fifth * gram @ gram
        x = one * x + (x @ factor if narrow else factor @ x)
    return x.astype(jnp.float32)
