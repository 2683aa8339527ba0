"""Dropout whose mask is a function of position, recomputed where it is needed.

The mask of an array is a hash of (seed, index of the element). So it is never kept for
the backward pass, costs a few integer operations fused into its neighbours, and does not
depend on how the array is sharded: each device hashes the global indices it holds.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


def mix(x: jax.Array) -> jax.Array:
    """A bijective 32-bit finalizer ("lowbias32" of Wellons' hash prospector)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def random_bits(seed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 bits of `shape` from a uint32 `seed`.

    Each row is a stretch of one fixed sequence of 2**32 numbers, from a place that is a hash of
    (seed, row). So two rows may share a part of their stretches, at other columns: of B rows of n
    elements, B**2 n / 2**32 pairs on average (3 of [256, 12, 128, 128], 64 of
    [256, 16, 512, 512]). No training was seen to be the worse for it.
    """
    bits = row_bits(seed, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    index = jnp.uint32(0)
    for axis in range(1, len(shape)):
        along = tuple(size if a == axis else 1 for a, size in enumerate(shape))
        index = index * jnp.uint32(shape[axis]) + jax.lax.broadcasted_iota(jnp.uint32, along, axis)
    return mix(bits + index)


def row_bits(seed: jax.Array, rows: int) -> jax.Array:
    """uint32 [rows]: where each row's stretch begins."""
    return mix(jnp.arange(rows, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9) + seed)


def kept(seed: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """The mask: bool, False with probability `rate`."""
    return random_bits(seed, shape) >= jnp.uint32(round(rate * 2**32))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropout(x: jax.Array, seed: jax.Array, rate: float) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
      x: any shape; the first axis counts rows (at most 2**32 elements a row).
      seed: uint32 scalar; the same seed gives the same mask.
      rate: static, in [0, 1).
    """
    return jnp.where(
        kept(seed, x.shape, rate), x * jnp.asarray(1 / (1 - rate), x.dtype), jnp.zeros((), x.dtype)
    )


def _forward(x, seed, rate):
    return dropout(x, seed, rate), seed


def _backward(rate, seed, gradient):
    return dropout(gradient, seed, rate), None


dropout.defvjp(_forward, _backward)


def dropout_seed(module: nn.Module) -> jax.Array:
    """A fresh uint32 seed from the module's "dropout" stream."""
    return jax.random.bits(module.make_rng("dropout"), (), jnp.uint32)


class Dropout(nn.Module):
    """Dropout of activations; the identity when deterministic.

    Attributes:
      field: the field of the spec that has the probability.
    """

    spec: Any
    field: str = "hidden_dropout_prob"

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        rate = getattr(self.spec, self.field)
        if deterministic or not rate:
            return x
        return dropout(x, dropout_seed(self), rate)
