"""The attention probabilities of self-attention, for pictures of them."""

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern, Mask, visible
from bertjax.models.layers.rotary import Rotation, rotated

# The collection that gets the probabilities of every layer, where a model is applied with it
# mutable. Flax leaves it out when it makes parameters.
ATTENTION = "intermediates"


def probabilities(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    rotation: Rotation | None = None,
    bias: jax.Array | float = 0.0,
) -> jax.Array:
    """softmax(query key^T / sqrt(H) + bias), undropped: [B, S, 3, N, H] -> float32 [B, N, S, S]."""
    qkv = qkv if rotation is None else rotated(qkv, rotation)
    query, key = (qkv[:, :, number].astype(jnp.float32) for number in range(2))
    scores = jnp.einsum("bsnh,btnh->bnst", query, key) * qkv.shape[-1] ** -0.5 + bias
    seen = visible(mask, pattern, qkv.shape[1])
    return jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(jnp.float32).min))
