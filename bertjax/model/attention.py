"""Scaled dot-product self-attention in its implementations, one signature.

query, key, value: [B, S, N, H]; mask: bool, broadcastable to [B, N, S, S], True where a
query may look; seed: uint32 scalar for the dropout of the probabilities, None for none.
Returns [B, S, N, H].
"""

import jax
import jax.numpy as jnp

from bertjax.model.dropout import dropout


def einsum_attention(query, key, value, mask, *, rate: float, seed) -> jax.Array:
    """Section 3 of "Attention is all you need", softmax in float32."""
    scores = jnp.einsum("bsnh,btnh->bnst", query, key, preferred_element_type=jnp.float32)
    scores = jnp.where(mask, scores * query.shape[-1] ** -0.5, jnp.finfo(jnp.float32).min)
    probabilities = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    if seed is not None:
        probabilities = dropout(probabilities, seed, rate)
    return jnp.einsum("bnst,btnh->bsnh", probabilities, value)


def fused_attention(query, key, value, mask, *, rate: float, seed) -> jax.Array:
    """`jax.nn.dot_product_attention`: cuDNN's kernel on a GPU in bfloat16, XLA's elsewhere."""
    del rate, seed  # BertSpec refuses dropout here
    length = query.shape[1]
    cudnn = jax.default_backend() == "gpu" and query.dtype == jnp.bfloat16
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.broadcast_to(mask, (*mask.shape[:2], length, length)),
        implementation="cudnn" if cudnn else "xla",
    )


IMPLEMENTATIONS = {"einsum": einsum_attention, "fused": fused_attention}
