"""Muon for the matrices of layers and heads (arXiv 2502.16982), however these are stored."""

from collections.abc import Sequence
from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from bertjax.base import axes

# The sides of matrices that are not D, or are the second D. Axes that are on neither side (layers,
# query, key and value) count matrices, each of which is orthogonalized alone.
_SIDES = (axes.HEADS, axes.HEAD_WIDTH, axes.MLP, axes.EMBED_OUT)

_RMS = 0.2  # of an update: about that of AdamW's, so one learning rate serves both (section 2.2)


def is_matrix(names: Sequence[str]) -> bool:
    """Whether a parameter with these logical axes has matrices of a layer or of a head."""
    return axes.EMBED in names and any(side in names for side in _SIDES)


def of_matrices(names: Any) -> Any:
    """A tree of bool, True where the parameters are matrices.

    Args:
      names: a tree of tuples of logical axes, one for each parameter.
    """
    return jax.tree.map(is_matrix, names, is_leaf=lambda leaf: isinstance(leaf, tuple))


def scale_matrices_by_muon(names: Any) -> optax.GradientTransformation:
    """Orthogonalized momentum, scaled to AdamW's size; other parameters' updates pass unchanged.

    The Newton-Schulz iteration has the five steps and the coefficients of the first Muon (Jordan
    2024). The momentum is Nesterov's with 0.95, as in that code, and is corrected for bias, as in
    Optax but not in that code. So the first updates weight the gradient and those before it
    differently, and the sum of 40 updates differs from Jordan's by a few per cent.

    Args:
      names: see `of_matrices`.
    """

    def sides(names: Sequence[str]) -> MuonDimensionNumbers | optax.MaskedNode:
        if not is_matrix(names):
            return optax.MaskedNode()
        places = [place for place, name in enumerate(names) if name in _SIDES]
        return MuonDimensionNumbers((names.index(axes.EMBED),), tuple(places))

    numbers = jax.tree.map(sides, names, is_leaf=lambda leaf: isinstance(leaf, tuple))

    def like_adamw(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
        del params
        return jax.tree.map(_scaled, updates, numbers)

    muon = scale_by_muon(weight_dimension_numbers=numbers)
    return optax.masked(optax.chain(muon, optax.stateless(like_adamw)), of_matrices(names))


def _scaled(update: jax.Array, numbers: MuonDimensionNumbers) -> jax.Array:
    """An orthogonal matrix of m x n has an RMS of 1 / sqrt(max(m, n))."""
    sizes = [1, 1]
    for side, places in enumerate(numbers):
        for place in places:
            sizes[side] *= update.shape[place]
    return _RMS * max(sizes) ** 0.5 * update
