"""Every implementation of attention takes these arguments.

  query    [B, S, N, H]
  key      [B, T, K, H], where K divides N: head n of the queries reads head n // (N / K)
  value    [B, T, K, H]
  mask     `Mask`: arrays that say what a query sees
  pattern  `AttentionPattern`: what a query sees by position alone; it is known when a program is
  compiled bias     [B or 1, N or 1, S, T], added to the scores query key^T / sqrt(H); or None
  drop     `DropoutSpec`: which attention probabilities are dropped; None: none

The result is [B, S, N, H]. In self-attention query, key and value may be one array, qkv
[B, S, 3, N, H], as one product makes it, and padding is a query, too. The output of padding, and of
a query that sees no key, has no meaning; the latter gives queries and keys no gradient.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Mask(NamedTuple):
    """The arrays that say which keys a query sees.

    Attributes:
      keys: int or bool [B, T], 1 on tokens and 0 on padding, which no query sees; or bool
        [B or 1, N or 1, S, T], True where a query sees a key.
      segment_ids: int [B, T], the number of each key's packed document: a query sees only keys of
        its own. None: a row is one document.
      query_segment_ids: int [B, S], the same for queries; None: queries and keys are one sequence.
    """

    keys: jax.Array
    segment_ids: jax.Array | None = None
    query_segment_ids: jax.Array | None = None


class AttentionPattern(NamedTuple):
    """The rule that says by position which keys a query sees.

    The last query stands at the position of the last key.

    Attributes:
      causal: a query sees no key after it.
      window: a query sees the keys at most so many positions away on either side; None: all.
    """

    causal: bool = False
    window: int | None = None


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["seed"], meta_fields=["rate", "bits"]
)
@dataclasses.dataclass(frozen=True)
class DropoutSpec:
    """The choice of the attention probabilities that are dropped.

    Attributes:
      seed: a uint32 scalar.
      rate: the probability, in (0, 1).
      bits: the random bits of a decision, 32 or 16 (`bertjax.models.layers.dropout.keep_mask`).
    """

    seed: jax.Array
    rate: float
    bits: int = 32


def visible(mask: Mask, pattern: AttentionPattern, queries: int) -> jax.Array:
    """Bool, broadcastable to [B, N, S, T]: True where a query (third axis) sees a key (fourth)."""
    seen = mask.keys.astype(bool)
    if seen.ndim == 2:
        seen = seen[:, None, None]  # [B, 1, 1, T]
    if pattern.causal or pattern.window is not None:
        keys = seen.shape[-1]
        distance = jnp.arange(keys) - jnp.arange(keys - queries, keys)[:, None]  # [S, T]
        if pattern.causal:
            seen = seen & (distance <= 0)
        if pattern.window is not None:
            seen = seen & (jnp.abs(distance) <= pattern.window)
    if mask.segment_ids is not None:
        of_keys, of_queries = mask.segment_ids, mask.query_segment_ids
        of_queries = of_keys if of_queries is None else of_queries
        seen = seen & (of_queries[:, :, None] == of_keys[:, None])[:, None]
    return seen
