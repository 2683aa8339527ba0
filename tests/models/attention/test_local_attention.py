"""Attention by blocks, compared with the same window as a mask over the whole sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.attention.einsum import einsum_self_attention
from bertjax.models.attention.local import local_self_attention
from tests.helpers.closeness import assert_close

B, N, H = 3, 2, 6


def _case(length: int, packed: bool):
    rng = np.random.default_rng(length)
    qkv = jnp.asarray(rng.normal(size=(B, length, 3, N, H)) * 2, jnp.float32)
    tokens = np.arange(length) < np.array([[length], [length // 2], [0]])
    segment_ids = np.cumsum(rng.random((B, length)) < 0.2, 1) if packed else None
    return qkv, Mask(jnp.asarray(tokens), segment_ids)


@pytest.mark.parametrize(
    "length, window, packed, causal",
    [(1, 1, False, False), (16, 4, True, False), (37, 3, True, True), (37, 3, False, False)],
)
def test_values_and_gradients(length, window, packed, causal):
    qkv, mask = _case(length, packed)
    pattern = AttentionPattern(causal, window)
    visible_by = jax.jit(visible, static_argnums=(1, 2))
    seen = np.broadcast_to(visible_by(mask, pattern, length), (B, 1, length, length))
    sees = seen.any(-1)[:, 0, :, None, None]

    def total(attend, qkv):
        context = jnp.where(sees, attend(qkv, mask, pattern), 0)
        weights = np.cos(np.arange(context.size)).reshape(context.shape)
        return (context * weights).sum(), context

    both = jax.jit(jax.grad(total, argnums=1, has_aux=True), static_argnums=0)
    assert_close(both(local_self_attention, qkv), both(einsum_self_attention, qkv))


def test_a_query_without_keys_gives_no_gradient_to_queries_and_keys():
    qkv, _ = _case(20, False)
    mask, pattern = Mask(np.zeros((B, 20), bool)), AttentionPattern(window=3)
    total = lambda qkv: (local_self_attention(qkv, mask, pattern) ** 2).sum()  # noqa: E731
    gradient = np.asarray(jax.jit(jax.grad(total))(qkv))
    assert not gradient[:, :, :2].any() and np.isfinite(gradient).all()


def test_dropout_takes_a_share_out_and_scales_the_rest():
    length, rate = 200, 0.3
    qkv = np.zeros((B, length, 3, N, H), np.float32)
    qkv[:, :, 2] = 1
    mask, pattern = Mask(np.ones((B, length), bool)), AttentionPattern(window=8)

    @jax.jit
    def attend(seed):
        return local_self_attention(
            qkv, mask, pattern, drop=DropoutSpec(seed.astype("uint32"), rate)
        )

    # A context is the sum of 17 weights of 1/17, each dropped or divided by 1 - rate.
    one, other, again = (np.asarray(attend(np.int32(seed))) for seed in (1, 2, 1))
    context = one[:, 8:-8, :, 0]
    kept = context * 17 * (1 - rate)
    assert_close(kept, np.round(kept))
    deviation = (rate * (1 - rate) / (17 * context.size)) ** 0.5 / (1 - rate)
    assert abs(context.mean() - 1) < 5 * deviation
    np.testing.assert_array_equal(one, again)
    assert (other != one).any()
