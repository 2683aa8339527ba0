"""Scaled dot-product self-attention by einsum, with its gradient written by hand."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.attention.contract import Keys, Pattern, dropping, visible
from bertjax.layers.dropout import kept

# Makes query, key and value, with the heads first, of the array that holds them.
Parts = Callable[[Any], Sequence[jax.Array]]


def einsum_attention(qkv, keys: Keys, pattern: Pattern, *, rate: float, seed) -> jax.Array:
    """See `bertjax.attention.contract`; softmax is computed in float32.

    It is section 3.2 of "Attention is all you need" (arXiv 1706.03762).
    """
    rate, seed = dropping(rate, seed)
    return _attend(qkv, visible(keys, pattern), seed, rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(qkv, mask, seed, rate):
    return _forward(qkv, mask, seed, rate)[0]


def _forward(qkv, mask, seed, rate):
    context, residuals = forward(heads_first, qkv, mask, seed, rate)
    return swap(context), (qkv, residuals)


def _backward(rate, residuals, gradient):
    qkv, residuals = residuals
    d_query, *others = backward(*heads_first(qkv), residuals, swap(gradient), rate)
    gradients = d_query * _scale(qkv), *others
    return jnp.stack(list(map(swap, gradients)), axis=2), None, None


_attend.defvjp(_forward, _backward)


def heads_first(qkv: jax.Array) -> list[jax.Array]:
    """[B, S, 3, N, H] -> query / sqrt(H), key, value: [B, N, S, H] each."""
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    return [_on_cpu_apart(x) for x in (query * _scale(qkv), key, value)]


def _scale(x: jax.Array) -> float:
    return x.shape[-1] ** -0.5


def swap(x: jax.Array) -> jax.Array:
    """[B, S, N, H] <-> [B, N, S, H]."""
    return x.transpose(0, 2, 1, 3)


# ------------------------------------------------------------ on arrays with the heads first


def forward(parts_of: Parts, source: Any, mask: jax.Array, seed, rate: float):
    """softmax(query key^T), dropped, times value.

    Written with its gradient, so that of all arrays [..., S, T] just one is kept for it:
    exp(score - highest score of its row), with a minus sign where dropout takes it out. Softmax's
    division comes after the product with the values: of H columns, not of T.

    Args:
      parts_of: makes of `source` the query [..., S, H], divided by sqrt(H), and the key and the
        value [..., T, H]. Where a TPU computes the scores twice, it does so from `source`.
      mask: bool, broadcastable to [..., S, T], True where a query sees a key.

    Returns:
      The context [..., S, H], and what `backward` needs of it.
    """
    exponentials = jax.lax.platform_dependent(
        *(source, mask),
        tpu=functools.partial(_exponentials_by_two_products, parts_of),
        default=functools.partial(_exponentials, parts_of),
    )
    _, _, value = parts_of(source)
    signed = exponentials.astype(value.dtype)
    if rate:
        signed = jnp.where(kept(seed, signed.shape, rate), signed, -signed)
    signed = _barrier(signed)
    total = jax.lax.platform_dependent(signed, tpu=_sum_by_product, default=_sum)  # [..., S, 1]
    context = jnp.einsum(
        "...st,...th->...sh", _dropped(signed, rate), value, preferred_element_type=jnp.float32
    )
    context = (context / (total * (1 - rate))).astype(value.dtype)
    return context, (signed, total, context, mask.any(-1, keepdims=True))


def backward(query, key, value, residuals, gradient, rate: float):
    """The gradients of query, key and value.

    Args:
      residuals: from `forward`.
      gradient: of the context.
    """
    signed, total, context, sees = residuals
    gradient = gradient.astype(jnp.float32) / total
    mean = (gradient * context.astype(jnp.float32)).sum(-1, keepdims=True)
    gradient = _on_cpu_apart((gradient / (1 - rate)).astype(value.dtype))
    d_value = jnp.einsum("...st,...sh->...th", _dropped(signed, rate), gradient)
    d_weights = jnp.einsum(
        "...sh,...th->...st", gradient, value, preferred_element_type=jnp.float32
    )
    if rate:
        d_weights = jnp.where(signed > 0, d_weights, 0.0)
    # Where a query sees no key, its scores are constant, and its exponentials all 1.
    d_scores = (jnp.abs(signed) * jnp.where(sees, d_weights - mean, 0)).astype(query.dtype)
    d_scores = _barrier(d_scores)  # computed once, for two products
    d_query = jnp.einsum("...st,...th->...sh", d_scores, key)
    d_key = jnp.einsum("...st,...sh->...th", d_scores, query)
    return d_query, d_key, d_value


def _scores(parts_of, source, mask):
    query, key, _ = parts_of(source)
    products = jnp.einsum("...sh,...th->...st", query, key, preferred_element_type=jnp.float32)
    return jnp.where(mask, products, jnp.finfo(jnp.float32).min)


def _exponentials(parts_of, source, mask):
    scores = _scores(parts_of, source, mask)
    return jnp.exp(scores - scores.max(-1, keepdims=True))


def _exponentials_by_two_products(parts_of, source, mask):
    """The same: a TPU multiplies twice in less time than it writes the scores and reads them."""
    highest = _scores(parts_of, source, mask).max(-1, keepdims=True)
    source, highest = _barrier((source, highest))
    return jnp.exp(_scores(parts_of, source, mask) - highest)


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
        "...st,tc->...sc",
        jnp.abs(signed),
        ones,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return sums[..., :1]
