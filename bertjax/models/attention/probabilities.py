"""The attention probabilities of self-attention, for pictures of them."""

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern, Mask, visible
from bertjax.models.attention.disentangled import Distances, with_bias
from bertjax.models.layers.rotary import Rotation, rotated

# The collection that gets the probabilities of every layer, where a model is applied with it
# mutable. Flax leaves it out when it makes parameters.
ATTENTION = "intermediates"


def probabilities(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    rotation: Rotation | None = None,
    distances: Distances | None = None,
) -> jax.Array:
    """Softmax of the scores, undropped: qkv [B, S, 3, N, H] -> float32 [B, N, S, S]."""
    qkv = qkv if rotation is None else rotated(qkv, rotation)
    qkv, bias = qkv.astype(jnp.float32), jnp.zeros(())
    query, key, _ = jnp.unstack(qkv, axis=2)
    if distances is not None:
        (query, key, _), bias = with_bias(qkv, distances)
    scores = jnp.einsum("bsnh,btnh->bnst", query, key) * qkv.shape[-1] ** -0.5 + bias
    seen = visible(mask, pattern, qkv.shape[1])
    return jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(jnp.float32).min))
