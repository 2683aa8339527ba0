"""Scores by the distance of a key from its query, for attention by relative positions."""

import jax


def by_distance(scores: jax.Array, keys: int) -> jax.Array:
    """Scores of S queries with the distances T, ..., 1 - S -> their scores with T keys.

    [..., S, S + T] -> [..., S, T]: column j of row i has the distance T - S + i - j. A row of the
    result begins S - i columns further in its row of the argument, which a change of shape does.
    """
    *batch, queries, distances = scores.shape
    moved = scores.reshape(*batch, distances, queries)[..., 1:, :]
    return moved.reshape(*batch, queries, distances - 1)[..., :keys]
