"""Ways in which the vectors of a text's tokens become one vector."""

import jax
import jax.numpy as jnp


def take_positions(states: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at positions [B, P] -> [B, P, D].

    A product with a one-hot matrix: exact, shards along B, and its gradient is a product too.
    """
    one_hot = jax.nn.one_hot(positions, states.shape[1], dtype=states.dtype)
    return jnp.einsum("bps,bsd->bpd", one_hot, states, precision=jax.lax.Precision.HIGHEST)


def last_token(states: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the last token that is no padding: [B, S, D] and int [B, S] -> [B, D]."""
    place = jnp.where(mask > 0, jnp.arange(mask.shape[1]), 0).max(-1, keepdims=True)
    return take_positions(states, place)[:, 0]


def one_token(states: jax.Array, mask: jax.Array, last: bool) -> jax.Array:
    """The vector of the first token, [CLS], or else of the last one: see `last_token`."""
    return last_token(states, mask) if last else states[:, 0]


def mean_of_tokens(states: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, without the padding: [B, S, D] and int [B, S] -> [B, D]."""
    mask = mask[..., None].astype(jnp.float32)
    mean = (states * mask).sum(1) / jnp.maximum(mask.sum(1), 1)
    return mean.astype(states.dtype)
