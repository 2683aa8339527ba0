"""Rotary position embeddings (RoFormer, arXiv 2104.09864, section 3.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rotation(NamedTuple):
    """The cosines and sines of every position: float32, [S, 1, 1, H] or [B, S, 1, 1, H]."""

    cosine: jax.Array
    sine: jax.Array


def rotation(positions: jax.Array, width: int, theta: float) -> Rotation:
    """The rotation of heads at some positions.

    Args:
      positions: int [S], or [B, S] if each row has its own.
      width: H, an even number.
      theta: the base of the frequencies; the slowest of them turns once in 2 pi theta positions.
    """
    frequencies = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    angles = positions[..., None].astype(jnp.float32) * frequencies.astype(np.float32)
    angles = jnp.concatenate([angles, angles], -1)[..., None, None, :]
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def rotated(x: jax.Array, by: Rotation) -> jax.Array:
    """Queries and keys, [B, S, 2, N, H], turned by the angles of their positions.

    Column i and column i + H / 2 are the two coordinates of one plane, as in transformers.
    """
    wide = x.astype(jnp.float32)
    first, second = jnp.split(wide, 2, -1)
    turned = jnp.concatenate([-second, first], -1)
    return (wide * by.cosine + turned * by.sine).astype(x.dtype)
