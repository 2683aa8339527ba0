"""The facts about the kernels of attention that are known when they are compiled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from bertjax.models.attention.contract import AttentionPattern

LANES = 128  # the columns of a vector register, which the heads of a group share
Index = jax.Array | int
Ref = Any  # an array in the memory of a chip, which a kernel reads or writes

BLOCK = 512  # the keys of a block, and the queries of a step, where it divides the length


class Dropout(NamedTuple):
    """The rule by which attention probabilities are dropped."""

    rate: float
    bits: int  # of a decision, 32 or 16
    paired: bool  # the heads of a group begin with an even number, so that two share 32 bits
    stride: int  # S without padding, by which the pairs of positions are numbered


class Form(NamedTuple):
    """A kernel's sizes and rules.

    If `streamed`, a block of queries is multiplied with one block of keys after another, which its
    bounds name; else with one block: all keys, or those of the window.
    """

    length: int  # T, the keys of a sequence, a multiple of 128
    width: int  # H, which divides 128
    step: int  # R, the queries of one step of the grid
    queries: int  # C, the queries of a block; it divides R
    keys: int  # K, the keys of a block
    streamed: bool
    pattern: AttentionPattern
    rotary: bool  # queries and keys are rotated
    by_distance: bool  # distances have queries and keys, too (`attention.disentangled`)
    dropout: Dropout

    @property
    def heads(self) -> int:
        """The heads of a group, which share the lanes."""
        return LANES // self.width

    @property
    def scale(self) -> float:
        """The factor of the scores, which have three terms if distances are part of them."""
        return (self.width * (3 if self.by_distance else 1)) ** -0.5

    @property
    def unaligned(self) -> bool:
        """Whether blocks of keys begin at multiples of 64, where no array can be cut by lanes."""
        return not self.streamed and self.keys < self.length

    @property
    def chunk(self) -> int:
        """The keys that are prepared at once: as many as the queries of a step, or less."""
        return _divisor(self.length, self.step)

    @property
    def most_blocks(self) -> int:
        """The most blocks of keys that a block of queries sees, if keys are streamed."""
        whole, window = self.length // self.keys, self.pattern.window
        return whole if window is None else min(whole, 2 + (self.queries + 2 * window) // self.keys)

    def of_head(self, head: int) -> slice:
        """The columns of a head of a group."""
        return slice(head * self.width, (head + 1) * self.width)

    def first_key(self, first_query: Index) -> Index:
        """The first key for a block of queries, unless keys are streamed."""
        if self.keys == self.length:
            return 0
        before = (self.keys - self.queries) // 2
        first = jnp.clip(first_query - before, 0, self.length - self.keys)
        return pl.multiple_of(first, LANES // 2)


def form_of(
    length: int,
    queries: int,
    width: int,
    pattern: AttentionPattern,
    dropout: Dropout,
    *,
    rotary: bool,
    by_distance: bool,
    backward: bool,
) -> Form:
    """The fastest form for a device's queries, by the bundles that the compiler makes."""
    step = _divisor(queries, BLOCK)
    keys, block, streamed = length, step, False
    if pattern.window is not None:
        reach = -(-pattern.window // (LANES // 2)) * (LANES // 2)
        block = LANES
        keys = min(length, block + 2 * reach)
    elif backward and not by_distance:
        block = _divisor(queries, 256)
    if keys > (BLOCK if keys % BLOCK == 0 else 2 * BLOCK):
        streamed, keys = True, _divisor(length, BLOCK)
        block = step
    sizes = length, width, step, block, keys
    return Form(*sizes, streamed, pattern, rotary, by_distance, dropout)


def padded_length(length: int) -> int:
    """The length with so much padding that blocks divide it."""
    block = LANES if length <= 2 * BLOCK else 2 * LANES
    return -(-length // block) * block


def _divisor(length: int, most: int) -> int:
    """The largest multiple of 128 that divides the length and is at most so large."""
    return max(size for size in range(LANES, most + 1, LANES) if length % size == 0)
