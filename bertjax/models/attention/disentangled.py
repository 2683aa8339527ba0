"""Disentangled attention (DeBERTa, arXiv 2006.03654, section 3.1): distances have vectors, too.

The score of a query at place i and a key at place j has three terms: of the query and the key, of
the query and the key of the distance i - j, and of the key and the query of that distance. Far
distances share a vector, as in DeBERTa-v2.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.models.attention.relative import by_distance


class Distances(NamedTuple):
    """The vectors of the distances between S tokens.

    Attributes:
      vectors: [R, D]; or the queries, keys and values that they become, [R, 3, N, H].
      rows: int [2, 2 S], the rows of the distances S, ..., 1 - S, and of -S, ..., S - 1.
    """

    vectors: jax.Array
    rows: jax.Array


def distances_of(vectors: jax.Array, length: int, farthest: int) -> Distances:
    """The distances of a sequence: half of the vectors are for keys before the query.

    Args:
      farthest: the distance from which on all have one vector.
    """
    distance = length - jnp.arange(2 * length)
    rows = _rows(jnp.stack([distance, -distance]), len(vectors) // 2, farthest)
    return Distances(vectors, rows)


def _rows(distances: jax.Array, buckets: int, farthest: int) -> jax.Array:
    """The row of each distance: up to half of the buckets its own, then by its logarithm."""
    half, near = buckets // 2, np.arange(farthest + 1)
    of_all = np.log(max(farthest - 1, half + 1) / half)
    far = half + np.ceil(np.log(np.maximum(near, half) / half) / of_all * (half - 1))
    bucket = jnp.asarray(np.where(near <= half, near, far), jnp.int32)
    signed = jnp.sign(distances) * bucket[jnp.minimum(jnp.abs(distances), farthest)]
    return jnp.clip(buckets + signed, 0, 2 * buckets - 1)


def by_row(distances: Distances) -> tuple[jax.Array, jax.Array]:
    """The keys of the distances S, ..., 1 - S, and the queries of -S, ..., S - 1: [2 S, N, H]."""
    of_query, of_key, _ = jnp.unstack(distances.vectors, axis=1)
    forward, backward = distances.rows
    return of_key[forward], of_query[backward]


def with_bias(
    qkv: jax.Array | tuple[jax.Array, ...], distances: Distances
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], jax.Array]:
    """Query, key and value, [B, S, N, H] each, and the bias by distances, [B, N, S, S].

    A score is divided by sqrt(3), too, for its three terms.
    """
    query, key, value = qkv if isinstance(qkv, tuple) else jnp.unstack(qkv, axis=2)
    length, width = query.shape[1], query.shape[-1]
    vectors_of_keys, vectors_of_queries = by_row(distances)
    product = partial(jnp.einsum, "bsnh,rnh->bnsr", preferred_element_type=jnp.float32)
    of_queries = by_distance(product(query, vectors_of_keys), length)
    of_keys = by_distance(product(key, vectors_of_queries), length)
    bias = (of_queries + of_keys.swapaxes(2, 3)) * (3 * width) ** -0.5
    return (query * 3**-0.5, key, value), bias
