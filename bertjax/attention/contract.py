"""The contract of attention: the arguments of every implementation, and its limits.

An implementation is called as `attend(qkv, keys, pattern, rate=..., seed=...)`:

  qkv      [B, S, 3, N, H], queries, keys and values
  keys     `Keys`: the facts about each position of the sequence
  pattern  `Pattern`: the positions that a query sees, by their distance alone
  rate     the probability of dropping an attention probability
  seed     a uint32 scalar, which decides what is dropped; None drops nothing

It returns [B, S, N, H]. The output of a query that sees no key at all is a mean of
values without meaning, and queries and keys get no gradient from it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Keys(NamedTuple):
    """The facts about each position of a sequence.

    Attributes:
      tokens: int or bool [B, S], 1 on tokens and 0 on padding, which no query sees.
      documents: int [B, S], a number for each document that is packed into the sequence: a query
        sees only keys of its own document. None: a sequence is one document.
    """

    tokens: jax.Array
    documents: jax.Array | None = None


class Pattern(NamedTuple):
    """The positions that a query sees; it is known when a program is compiled.

    Attributes:
      causal: a query sees no key after it.
      window: a query sees the keys at most so many places away on either side; None: all.
    """

    causal: bool = False
    window: int | None = None


class Implementation(NamedTuple):
    """A way to compute attention, and what it supports.

    Attributes:
      attend: see above.
      dropout: whether it can drop attention probabilities.
    """

    attend: Callable[..., jax.Array]
    dropout: bool


def dropping(rate: float, seed) -> tuple[float, jax.Array]:
    """The rate and the seed of dropout; without a seed, nothing is dropped."""
    return (0.0, jnp.uint32(0)) if seed is None else (rate, seed)


def visible(keys: Keys, pattern: Pattern) -> jax.Array:
    """Bool, broadcastable to [B, N, S, S]: True where a query (third axis) sees a key (fourth).

    For implementations that have no cheaper form of it.
    """
    length = keys.tokens.shape[1]
    mask = keys.tokens[:, None, None, :].astype(bool)  # [B, 1, 1, S]
    if pattern.causal:
        mask = mask & jnp.tril(jnp.ones((length, length), bool))  # [B, 1, S, S]
    if pattern.window is not None:
        places = jnp.arange(length)
        mask = mask & (jnp.abs(places[:, None] - places) <= pattern.window)
    if keys.documents is not None:
        same = keys.documents[:, :, None] == keys.documents[:, None, :]
        mask = mask & same[:, None]
    return mask
