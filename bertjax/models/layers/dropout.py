"""Dropout whose mask is a function of position, recomputed where it is needed.

The mask of an array is a hash of (seed, index of the element). So it is never stored for the
backward pass, costs a few integer operations fused into its neighbours, and does not depend on how
the array is sharded: each device hashes the global indices it holds.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn


def mix(x: jax.Array) -> jax.Array:
    """A bijective 32-bit finalizer ("lowbias32" of Wellons' hash prospector)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def random_bits(seed: jax.Array, shape: tuple[int, ...], shared: int = 1) -> jax.Array:
    """uint32 bits of `shape` from a uint32 `seed`; `shared` neighbours on axis 1 have the same.

    Each row is a section of one fixed sequence of 2**32 numbers, which begins at a hash of (seed,
    row). So the sections of two rows may overlap, at different columns: of B rows of n elements,
    B**2 n / 2**32 pairs on average (3 of [256, 12, 128, 128], 64 of [256, 16, 512, 512]). No
    training run was seen to suffer from it.
    """
    bits = row_bits(seed, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    index = jnp.uint32(0)
    for axis in range(1, len(shape)):
        several = shared if axis == 1 else 1
        index = index * jnp.uint32(-(-shape[axis] // several)) + _place(shape, axis) // several
    return mix(bits + index)


def _place(shape: tuple[int, ...], axis: int) -> jax.Array:
    """The index of each element along an axis, uint32 [1, ..., size, ..., 1]."""
    along = tuple(size if a == axis else 1 for a, size in enumerate(shape))
    return jax.lax.broadcasted_iota(jnp.uint32, along, axis)


def row_bits(seed: jax.Array, rows: int) -> jax.Array:
    """uint32 [rows]: where each row's section begins."""
    return mix(jnp.arange(rows, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9) + seed)


def keep_mask(seed: jax.Array, shape: tuple[int, ...], rate: float, bits: int = 32) -> jax.Array:
    """The mask: bool, False with probability `rate`; `bits` decide on an element, 32 or 16.

    With 16, the elements 2 i and 2 i + 1 of the second axis (of attention: two heads) share a
    number of 32 bits, and the probability is a multiple of 2 ** -16.
    """
    if bits == 32:
        return random_bits(seed, shape) >= jnp.uint32(round(rate * 2**32))
    drawn = half_of(random_bits(seed, shape, shared=2), _place(shape, 1) % 2)
    return drawn >= jnp.uint32(round(rate * 2**16))


def half_of(both: jax.Array, half: jax.Array | int) -> jax.Array:
    """The lower (half 0) or the upper (half 1) 16 bits."""
    return (both >> jnp.uint32(16 * half)) & jnp.uint32(0xFFFF)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropout(x: jax.Array, seed: jax.Array, rate: float) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    The first axis of x counts rows, of at most 2**32 elements each. The same seed (uint32 scalar)
    gives the same mask. The rate is static, in [0, 1).
    """
    return jnp.where(
        keep_mask(seed, x.shape, rate),
        x * jnp.asarray(1 / (1 - rate), x.dtype),
        jnp.zeros((), x.dtype),
    )


def _forward(x: jax.Array, seed: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    return dropout(x, seed, rate), seed


def _backward(rate: float, seed: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    return dropout(gradient, seed, rate), None


dropout.defvjp(_forward, _backward)


def dropout_seed(module: nn.Module) -> jax.Array:
    """A new uint32 seed from the module's "dropout" stream."""
    return jax.random.bits(module.make_rng("dropout"), (), jnp.uint32)


class Dropout(nn.Module):
    """Dropout of activations at a rate in [0, 1); the identity when deterministic."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        if deterministic or not self.rate:
            return x
        return dropout(x, dropout_seed(self), self.rate)
