"""Scaled dot-product self-attention in its implementations, one signature.

query, key, value: [B, S, N, H]; mask: bool, broadcastable to [B, N, S, S], True where a
query may look; seed: uint32 scalar for the dropout of the probabilities, None for none.
Returns [B, S, N, H].
"""

import jax
import jax.numpy as jnp

from bertjax.model.dropout import dropout


def einsum_attention(query, key, value, mask, *, rate: float, seed) -> jax.Array:
    """Section 3 of "Attention is all you need", softmax in float32.

    Softmax's division comes after the product with the values: of H columns, not of S.
    """
    heads_first = [x.transpose(0, 2, 1, 3) for x in (query * query.shape[-1] ** -0.5, key, value)]
    if jax.default_backend() == "cpu":
        # XLA:CPU would leave each head's rows apart, and run its small products slower.
        heads_first = jax.lax.optimization_barrier(heads_first)
    query, key, value = heads_first  # [B, N, S, H]
    scores = jnp.einsum("bnsh,bnth->bnst", query, key, preferred_element_type=jnp.float32)
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
    exponentials = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    total = exponentials.sum(-1, keepdims=True)  # [B, N, S, 1]
    weights = exponentials.astype(value.dtype)
    if seed is not None:
        weights = dropout(weights, seed, rate)
    context = jnp.einsum("bnst,bnth->bnsh", weights, value, preferred_element_type=jnp.float32)
    return (context / total).astype(value.dtype).transpose(0, 2, 1, 3)


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
