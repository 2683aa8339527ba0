"""Scaled dot-product attention by einsum, with its gradient written by hand.

It is section 3.2 of "Attention is all you need" (arXiv 1706.03762); softmax is computed in float32.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.layers.dropout import keep_mask

# Makes query / sqrt(H), key and value from the given array or arrays, with the heads first.
Split = Callable[[Any], Sequence[jax.Array]]
Residuals = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # of `forward`, for `backward`


def einsum_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    bias: jax.Array | None = None,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    seen = visible(mask, pattern, query.shape[1])
    return _attend(_APART, (query, key, value), bias, seen, drop)


def einsum_self_attention(
    qkv: jax.Array,
    mask: Mask,
    pattern: AttentionPattern,
    *,
    drop: DropoutSpec | None = None,
) -> jax.Array:
    return _attend(_JOINED, qkv, None, visible(mask, pattern, qkv.shape[1]), drop)


class _Form(NamedTuple):
    """How query, key and value are given."""

    split: Split
    # (gradients of query, key and value [B, N, S, H], what was given) -> the gradient of the latter
    join: Callable[[Sequence[jax.Array], Any], Any]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    form: _Form,
    arrays: Any,
    bias: jax.Array | None,
    seen: jax.Array,
    drop: DropoutSpec | None,
) -> jax.Array:
    return _forward(form, arrays, bias, seen, drop)[0]


def _forward(
    form: _Form,
    arrays: Any,
    bias: jax.Array | None,
    seen: jax.Array,
    drop: DropoutSpec | None,
) -> tuple[jax.Array, tuple[Any, jax.Array | None, DropoutSpec | None, Residuals]]:
    context, residuals = forward(form.split, arrays, seen, drop, bias)
    return swap(context), (arrays, bias, drop, residuals)


def _backward(
    form: _Form,
    residuals: tuple[Any, jax.Array | None, DropoutSpec | None, Residuals],
    gradient: jax.Array,
) -> tuple[Any, jax.Array | None, None, None]:
    arrays, bias, drop, of_forward = residuals
    query, key, value = form.split(arrays)
    d_query, d_key, d_value, d_scores = backward(
        query, key, value, of_forward, swap(gradient), drop
    )
    d_arrays = form.join((d_query * _scale(query), d_key, d_value), arrays)
    d_bias = None if bias is None else _summed_like(d_scores, bias)
    return d_arrays, d_bias, None, None


_attend.defvjp(_forward, _backward)


def heads_first(qkv: jax.Array) -> list[jax.Array]:
    """[B, S, 3, N, H] -> query / sqrt(H), key, value: [B, N, S, H] each."""
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    return [_on_cpu_apart(x) for x in (query * _scale(qkv), key, value)]


def _heads_last(gradients: Sequence[jax.Array], qkv: jax.Array) -> jax.Array:
    del qkv
    return jnp.stack(list(map(swap, gradients)), axis=2)


def _each_heads_first(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """A head of keys and values is repeated for all heads of queries that read it."""
    query, *others = map(swap, arrays)
    readers = query.shape[1] // others[0].shape[1]
    key, value = (x if readers == 1 else jnp.repeat(x, readers, axis=1) for x in others)
    return [query * _scale(query), key, value]


def _each_heads_last(
    gradients: Sequence[jax.Array], arrays: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    def summed(gradient: jax.Array, x: jax.Array) -> jax.Array:
        gradient = swap(gradient)
        if gradient.shape == x.shape:
            return gradient
        return gradient.reshape(*x.shape[:3], -1, x.shape[3]).sum(3)

    return tuple(map(summed, gradients, arrays))


_JOINED = _Form(heads_first, _heads_last)
_APART = _Form(_each_heads_first, _each_heads_last)


def _summed_like(gradient: jax.Array, bias: jax.Array) -> jax.Array:
    """The gradient of an array that was broadcast: summed over the axes where it has size 1."""
    axes = [axis for axis, size in enumerate(bias.shape) if size < gradient.shape[axis]]
    return gradient.astype(jnp.float32).sum(axes, keepdims=True).astype(bias.dtype)


def _scale(x: jax.Array) -> float:
    return x.shape[-1] ** -0.5


def swap(x: jax.Array) -> jax.Array:
    """[B, S, N, H] <-> [B, N, S, H]."""
    return x.transpose(0, 2, 1, 3)


# ------------------------------------------------------------ on arrays with the heads first


def forward(
    split: Split,
    arrays: Any,
    mask: jax.Array,
    drop: DropoutSpec | None,
    bias: jax.Array | None = None,
) -> tuple[jax.Array, Residuals]:
    """softmax(query key^T + bias), with dropout, times value: [..., S, H], and the residuals.

    The gradient is written by hand, so that only one array [..., S, T] is stored for it:
    exp(score - highest score of its row), negative where dropout removes it. Softmax's division
    comes after the product with the values, where it has H columns, not T.

    Args:
      split: makes from `arrays` the query [..., S, H], divided by sqrt(H), and the key and the
        value [..., T, H]. A TPU, which computes the scores twice, starts from `arrays` both times.
      mask: bool, broadcastable to [..., S, T], True where a query sees a key.
      bias: broadcastable to [..., S, T].
    """
    exponentials = jax.lax.platform_dependent(
        *(arrays, mask, bias),
        tpu=functools.partial(_exponentials_by_two_products, split),
        default=functools.partial(_exponentials, split),
    )
    _, _, value = split(arrays)
    signed = exponentials.astype(value.dtype)
    if drop:
        kept = keep_mask(drop.seed, signed.shape, drop.rate, drop.bits)
        signed = jnp.where(kept, signed, -signed)
    signed = _barrier(signed)
    total = jax.lax.platform_dependent(signed, tpu=_sum_by_product, default=_sum)  # [..., S, 1]
    context = jnp.einsum(
        "...st,...th->...sh", _dropped(signed, drop), value, preferred_element_type=jnp.float32
    )
    context = (context / (total * _kept(drop))).astype(value.dtype)
    return context, (signed, total, context, mask.any(-1, keepdims=True))


def backward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    residuals: Residuals,
    gradient: jax.Array,
    drop: DropoutSpec | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The gradients of query, key and value, and of the scores [..., S, T]."""
    signed, total, context, sees = residuals
    gradient = gradient.astype(jnp.float32) / total
    mean = (gradient * context.astype(jnp.float32)).sum(-1, keepdims=True)
    gradient = _on_cpu_apart((gradient / _kept(drop)).astype(value.dtype))
    d_value = jnp.einsum("...st,...sh->...th", _dropped(signed, drop), gradient)
    d_weights = jnp.einsum(
        "...sh,...th->...st", gradient, value, preferred_element_type=jnp.float32
    )
    if drop:
        d_weights = jnp.where(signed > 0, d_weights, 0.0)
    # Where a query sees no key, its scores are constant, and its exponentials all 1.
    d_scores = (jnp.abs(signed) * jnp.where(sees, d_weights - mean, 0)).astype(query.dtype)
    d_scores = _barrier(d_scores)  # computed once, for two products
    d_query = jnp.einsum("...st,...th->...sh", d_scores, key)
    d_key = jnp.einsum("...st,...sh->...th", d_scores, query)
    return d_query, d_key, d_value, d_scores


def _scores(split: Split, arrays: Any, mask: jax.Array, bias: jax.Array | None) -> jax.Array:
    query, key, _ = split(arrays)
    scores = jnp.einsum("...sh,...th->...st", query, key, preferred_element_type=jnp.float32)
    scores = scores if bias is None else scores + bias
    return jnp.where(mask, scores, jnp.finfo(jnp.float32).min)


def _exponentials(split: Split, arrays: Any, mask: jax.Array, bias: jax.Array | None) -> jax.Array:
    scores = _scores(split, arrays, mask, bias)
    return jnp.exp(scores - scores.max(-1, keepdims=True))


def _exponentials_by_two_products(
    split: Split, arrays: Any, mask: jax.Array, bias: jax.Array | None
) -> jax.Array:
    """The same: a TPU multiplies twice in less time than it writes the scores and reads them."""
    highest = _scores(split, arrays, mask, bias).max(-1, keepdims=True)
    arrays, highest = _barrier((arrays, highest))
    return jnp.exp(_scores(split, arrays, mask, bias) - highest)


def _kept(drop: DropoutSpec | None) -> float:
    """The probability of keeping an attention probability."""
    return 1 - drop.rate if drop else 1


def _dropped(signed: jax.Array, drop: DropoutSpec | None) -> jax.Array:
    """The weights, 0 where dropout removes them; the others are not scaled."""
    return jnp.maximum(signed, 0) if drop else signed


_barrier = jax.lax.optimization_barrier  # what comes before it is computed once, and stored


def _on_cpu_apart(x: jax.Array) -> jax.Array:
    """Stores `x` on a CPU; XLA would leave each head's rows apart, which slows small products."""
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
