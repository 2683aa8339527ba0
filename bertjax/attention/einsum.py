"""Scaled dot-product self-attention by einsum, with its gradient written by hand."""

import functools

import jax
import jax.numpy as jnp

from bertjax.attention.contract import Keys, Pattern, visible
from bertjax.layers.dropout import kept


def einsum_attention(qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """Section 3 of "Attention is all you need", softmax in float32: `bertjax.attention.contract`.

    Softmax's division comes after the product with the values: of H columns, not of S.
    """
    if seed is None:
        rate, seed = 0.0, jnp.uint32(0)
    return _attend(qkv, visible(keys, pattern), seed, rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(qkv, mask, seed, rate):
    """softmax(query key^T / sqrt(H)), dropped, times value.

    Written with its gradient, so that of all the [B, N, S, S] arrays just one is kept for it:
    exp(score - highest score of its row), with a minus sign where dropout takes it out.
    """
    return _forward(qkv, mask, seed, rate)[0]


def _forward(qkv, mask, seed, rate):
    exponentials = jax.lax.platform_dependent(
        qkv, mask, tpu=_exponentials_by_two_products, default=_exponentials
    )
    signed = exponentials.astype(qkv.dtype)
    if rate:
        signed = jnp.where(kept(seed, signed.shape, rate), signed, -signed)
    signed = _barrier(signed)
    total = jax.lax.platform_dependent(signed, tpu=_sum_by_product, default=_sum)  # [B, N, S, 1]
    _, _, value = _heads_first(qkv)
    context = jnp.einsum(
        "bnst,bnth->bnsh", _dropped(signed, rate), value, preferred_element_type=jnp.float32
    )
    context = (context / (total * (1 - rate))).astype(value.dtype)
    return _swap(context), (qkv, signed, total, context, mask.any(-1, keepdims=True))


def _scores(qkv, mask):
    query, key, _ = _heads_first(qkv)
    products = jnp.einsum("bnsh,bnth->bnst", query, key, preferred_element_type=jnp.float32)
    return jnp.where(mask, products, jnp.finfo(jnp.float32).min)


def _exponentials(qkv, mask):
    scores = _scores(qkv, mask)
    return jnp.exp(scores - scores.max(-1, keepdims=True))


def _exponentials_by_two_products(qkv, mask):
    """The same: a TPU multiplies twice in less time than it writes the scores and reads them."""
    highest = _scores(qkv, mask).max(-1, keepdims=True)
    qkv, highest = _barrier((qkv, highest))
    return jnp.exp(_scores(qkv, mask) - highest)


def _backward(rate, kept_arrays, gradient):
    qkv, signed, total, context, sees = kept_arrays
    query, key, value = _heads_first(qkv)
    gradient = _swap(gradient).astype(jnp.float32) / total
    mean = (gradient * context.astype(jnp.float32)).sum(-1, keepdims=True)
    gradient = _on_cpu_apart((gradient / (1 - rate)).astype(value.dtype))
    d_value = jnp.einsum("bnst,bnsh->bnth", _dropped(signed, rate), gradient)
    d_weights = jnp.einsum("bnsh,bnth->bnst", gradient, value, preferred_element_type=jnp.float32)
    if rate:
        d_weights = jnp.where(signed > 0, d_weights, 0.0)
    # Where a query sees no key, its scores are constant, and its exponentials all 1.
    d_scores = (jnp.abs(signed) * jnp.where(sees, d_weights - mean, 0)).astype(query.dtype)
    d_scores = _barrier(d_scores)  # computed once, for two products
    d_query = jnp.einsum("bnst,bnth->bnsh", d_scores, key) * _scale(qkv)
    d_key = jnp.einsum("bnst,bnsh->bnth", d_scores, query)
    return jnp.stack(list(map(_swap, (d_query, d_key, d_value))), axis=2), None, None


_attend.defvjp(_forward, _backward)


def _heads_first(qkv: jax.Array) -> list[jax.Array]:
    """[B, S, 3, N, H] -> query / sqrt(H), key, value: [B, N, S, H] each."""
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    return [_on_cpu_apart(x) for x in (query * _scale(qkv), key, value)]


def _scale(qkv: jax.Array) -> float:
    return qkv.shape[-1] ** -0.5


def _swap(x: jax.Array) -> jax.Array:
    """[B, S, N, H] <-> [B, N, S, H]."""
    return x.transpose(0, 2, 1, 3)


def _dropped(signed: jax.Array, rate: float) -> jax.Array:
    """Without the weights that dropout takes out; what is left is not scaled."""
    return jnp.maximum(signed, 0) if rate else signed


_barrier = jax.lax.optimization_barrier  # what comes before it is computed once, and stored


def _on_cpu_apart(x: jax.Array) -> jax.Array:
    """XLA:CPU would leave each head's rows apart, and run its small products slower."""
    return jax.lax.platform_dependent(x, cpu=_barrier, default=lambda x: x)


def _sum(signed: jax.Array) -> jax.Array:
    return jnp.abs(signed).astype(jnp.float32).sum(-1, keepdims=True)


def _sum_by_product(signed: jax.Array) -> jax.Array:
    """The same by the matrix unit of a TPU, which has 128 columns."""
    ones = jnp.ones((signed.shape[-1], 128), signed.dtype)
    sums = jnp.einsum(
        "bnst,tc->bnsc",
        jnp.abs(signed),
        ones,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return sums[..., :1]
