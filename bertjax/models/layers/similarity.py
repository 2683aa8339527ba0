"""How alike texts are, from their vectors.

A text is one vector [D], or with late interaction (ColBERT, arXiv 2004.12832) a vector for each
token [S, D], of which a mask [S] says which count.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

_AT_ONCE = 64  # texts whose tokens are compared with those of all queries at once
_SMALL = 1e-12


class Vectors(NamedTuple):
    """The vectors of texts, float32 [..., D]; or of tokens [..., S, D], and a mask [..., S]."""

    values: jax.Array
    mask: jax.Array | None = None


class Similarity(NamedTuple):
    """A measure of similarity; greater is more alike.

    Attributes:
      own: (queries of B texts, passages of B x K texts) -> [B, K], each query with its passages.
      every: (queries of B texts, passages of M texts) -> [B, M]; None: it compares only pairs.
    """

    own: Callable[[Vectors, Vectors], jax.Array]
    every: Callable[[Vectors, Vectors], jax.Array] | None = None


def normalized(x: jax.Array) -> jax.Array:
    """The vectors with Euclidean length 1; a vector of zeros stays one."""
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), _SMALL**2))


_product = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def _dot_pairs(query: Vectors, passage: Vectors) -> jax.Array:
    return _product("bd,bkd->bk", query.values, passage.values)


def _dot_all(query: Vectors, passage: Vectors) -> jax.Array:
    return _product("bd,md->bm", query.values, passage.values)


def _cosine(of: Callable[[Vectors, Vectors], jax.Array]) -> Callable[[Vectors, Vectors], jax.Array]:
    def cosine(query: Vectors, passage: Vectors) -> jax.Array:
        return of(*(Vectors(normalized(x.values)) for x in (query, passage)))

    return cosine


def _root(squares: jax.Array) -> jax.Array:
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)


def _euclidean_pairs(query: Vectors, passage: Vectors) -> jax.Array:
    return -_root(jnp.square(query.values[:, None] - passage.values).sum(-1))


def _euclidean_all(query: Vectors, passage: Vectors) -> jax.Array:
    squares = [jnp.square(x.values).sum(-1) for x in (query, passage)]
    return -_root(squares[0][:, None] + squares[1] - 2 * _dot_all(query, passage))


def _angle(query: Vectors, passage: Vectors) -> jax.Array:
    """The absolute sum of the quotient of two complex vectors (AnglE, arXiv 2309.12871)."""
    a, b = jnp.split(query.values[:, None], 2, -1)
    c, d = jnp.split(passage.values, 2, -1)
    lengths = [_root((jnp.square(x) + jnp.square(y)).sum(-1)) for x, y in ((a, b), (c, d))]
    real, imaginary = (a * c + b * d).sum(-1), (b * c - a * d).sum(-1)
    return jnp.abs(real + imaginary) / jnp.maximum(lengths[0] * lengths[1], _SMALL)


def _most_alike(pairs: jax.Array, query: jax.Array, passage: jax.Array) -> jax.Array:
    """[..., S, T] -> [...]: each token of a query with the token that is most like it, summed."""
    best = jnp.where(passage[..., None, :], pairs, -jnp.inf).max(-1)
    return jnp.where(query & jnp.isfinite(best), best, 0).sum(-1)


def _masks(query: Vectors, passage: Vectors) -> tuple[jax.Array, jax.Array]:
    assert query.mask is not None and passage.mask is not None
    return query.mask, passage.mask


def _maxsim_pairs(query: Vectors, passage: Vectors) -> jax.Array:
    of_query, of_passage = _masks(query, passage)
    pairs = _product("bsd,bktd->bkst", query.values, passage.values)
    return _most_alike(pairs, of_query[:, None], of_passage)


def _maxsim_all(query: Vectors, passage: Vectors) -> jax.Array:
    of_query, of_passage = _masks(query, passage)

    @jax.checkpoint
    def with_one(text: tuple[jax.Array, jax.Array]) -> jax.Array:
        values, mask = text
        return _most_alike(_product("bsd,td->bst", query.values, values), of_query, mask)

    return jax.lax.map(with_one, (passage.values, of_passage), batch_size=_AT_ONCE).T


SIMILARITIES = {
    "cosine": Similarity(_cosine(_dot_pairs), _cosine(_dot_all)),
    "dot": Similarity(_dot_pairs, _dot_all),
    "euclidean": Similarity(_euclidean_pairs, _euclidean_all),  # the distance, negative
    "angle": Similarity(_angle),
    "maxsim": Similarity(_maxsim_pairs, _maxsim_all),
}
