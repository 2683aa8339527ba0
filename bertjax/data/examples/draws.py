"""Random numbers that are a function of their indices, for whole arrays at once.

A draw is a hash of (seed, purpose, index), without a state. So any row of any batch can be made
alone, in any order, on any host.
"""

import zlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer: a bijection of uint64 whose output bits look independent."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _hash(name: str) -> np.uint64:
    return np.uint64(zlib.crc32(name.encode()))


class Draws:
    """The draws of one (seed, stream): a stream is a use of them ("phase 0", "heldout")."""

    def __init__(self, seed: int, stream: str):
        self._key = _mix(np.array([seed], np.uint64) * _GOLDEN + _hash(stream))
        self._purposes: dict[str, np.ndarray] = {}

    def keys(self, purpose: str, *indices: np.ndarray) -> np.ndarray:
        """Hashes a purpose and one or more index arrays [R] to uint64 [R]."""
        if purpose not in self._purposes:
            self._purposes[purpose] = _mix(self._key + _hash(purpose))
        key = self._purposes[purpose]
        for index in indices:
            key = _mix(key + np.asarray(index).astype(np.uint64) * _GOLDEN)
        return key

    def below(self, limit: np.ndarray | int, purpose: str, *indices: np.ndarray) -> np.ndarray:
        """int64 [R], uniform in [0, limit): limit int64 [R] or scalar, 1 to 2**50."""
        return (self.uniform(purpose, *indices) * limit).astype(np.int64)

    def uniform(self, purpose: str, *indices: np.ndarray) -> np.ndarray:
        """float64 [R], uniform in [0, 1)."""
        # With 52 bits instead of 53, a product with an integer never rounds up to that integer.
        return (self.keys(purpose, *indices) >> np.uint64(12)) * 2.0**-52

    def bits(self, width: int, purpose: str, *indices: np.ndarray) -> np.ndarray:
        """uint32 [R, width] of independent bits."""
        words = np.arange((width + 1) // 2, dtype=np.uint64) * _GOLDEN
        return _mix(self.keys(purpose, *indices)[:, None] + words).view(np.uint32)[:, :width]


def permute(index: np.ndarray, size: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Evaluates a pseudo-random permutation of range(size) at `index`; each key has its own.

    A keyed bijection of range(next power of two) is applied until the result is below `size`. Its
    steps (products with odd numbers, and XORs of high bits into low bits) are invertible. No array
    of length `size` is made.

    Args:
      index, size: int64 [R], 0 <= index < size.
      keys: uint64 [R]; rows with equal key and size share one permutation.
    """
    size = size.astype(np.uint64)
    bits = np.ceil(np.log2(np.maximum(size, 2))).astype(np.uint64)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    fold = (bits + np.uint64(1)) >> np.uint64(1)
    x = index.astype(np.uint64)
    walking = np.arange(len(x))
    while walking.size:
        y, m, f, k = x[walking], mask[walking], fold[walking], keys[walking]
        for _ in range(4):
            k = _mix(k + _GOLDEN)
            y = ((y + k) * ((k >> np.uint64(32)) | np.uint64(1))) & m
            y ^= y >> f
        x[walking] = y
        walking = walking[y >= size[walking]]
    return x.astype(np.int64)
