"""Rotary position embeddings (RoFormer, arXiv 2104.09864, section 3.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rotation(NamedTuple):
    """The cosines and sines of every position: float32, [S, 3, 1, H] or [B, S, 3, 1, H].

    The axis of size 3 is that of queries, keys and values. The angles of values are 0.
    """

    cosine: jax.Array
    sine: jax.Array

    @property
    def of_one(self) -> "Rotation":
        """The same for queries or keys alone: [S, 1, H] or [B, S, 1, H]."""
        return Rotation(self.cosine[..., 0, :, :], self.sine[..., 0, :, :])


def rotation(positions: jax.Array, width: int, theta: float) -> Rotation:
    """The rotation of heads at positions int [S], or [B, S] if each row has its own.

    H, the width, is even. The slowest frequency turns once in 2 pi theta positions.
    """
    frequencies = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    angles = positions[..., None].astype(jnp.float32) * frequencies.astype(np.float32)
    angles = jnp.concatenate([angles, angles], -1)[..., None, :]
    angles = jnp.stack([angles, angles, jnp.zeros_like(angles)], -3)
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def rotated(qkv: jax.Array, by: Rotation) -> jax.Array:
    """Turns queries and keys by the angles of their positions, and keeps values: [B, S, 3, N, H].

    Column i and column i + H / 2 are the two coordinates of one plane, as in transformers. All
    three are computed alike, because a TPU would take longer to split the array and join it again.
    With `Rotation.of_one`, queries or keys alone are turned, [B, S, N, H].
    """
    turned = jax.lax.platform_dependent(qkv, tpu=_turned_by_product, default=_turned)
    wide = qkv.astype(jnp.float32) * by.cosine + turned.astype(jnp.float32) * by.sine
    return wide.astype(qkv.dtype)


def _turned(x: jax.Array) -> jax.Array:
    """A quarter turn of every plane: (first, second) -> (-second, first)."""
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([-second, first], -1)


def _turned_by_product(x: jax.Array) -> jax.Array:
    """The same, exactly, by the matrix unit of a TPU: faster there than moving columns."""
    half = np.eye(x.shape[-1] // 2)
    quarter_turn = np.kron([[0, 1], [-1, 0]], half)
    return jnp.einsum("...h,hg->...g", x, jnp.asarray(quarter_turn, x.dtype), precision="highest")
