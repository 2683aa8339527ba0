"""What is written another way for TPUs computes the same; here a CPU runs both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.einsum import einsum_self_attention
from bertjax.models.attention.local import local_self_attention
from bertjax.models.layers.rotary import rotated, rotation
from tests.helpers.closeness import assert_close

B, S, N, H = 2, 11, 3, 6
SEGMENT_IDS = np.array([[0] * 4 + [1] * 7, [0] * 5 + [1] * 3 + [2] * 3])


def _attention(attend, drop=None):
    mask = Mask(jnp.asarray(SEGMENT_IDS < 2), jnp.asarray(SEGMENT_IDS))
    return lambda qkv: attend(qkv, mask, AttentionPattern(window=2), drop=drop)


FUNCTIONS = {
    "einsum": _attention(einsum_self_attention),
    "einsum with dropout": _attention(einsum_self_attention, DropoutSpec(jnp.uint32(7), 0.3)),
    "local": _attention(local_self_attention),
    "local with dropout": _attention(local_self_attention, DropoutSpec(jnp.uint32(7), 0.3)),
    "rotary positions": lambda qkv: rotated(qkv, rotation(jnp.arange(S), H, 100.0)),
}


def _for_tpu(*arguments, tpu=None, default=None, **_):
    return (tpu or default)(*arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_the_same(name, monkeypatch):
    rng = np.random.default_rng(3)
    qkv = jnp.asarray(rng.normal(size=(B, S, 3, N, H)), jnp.float32)
    shape = jax.eval_shape(FUNCTIONS[name], qkv).shape
    weights = jnp.asarray(rng.normal(size=shape), jnp.float32)

    def both():
        total = lambda qkv: (FUNCTIONS[name](qkv) * weights).sum()  # noqa: E731
        return jax.jit(lambda qkv: (FUNCTIONS[name](qkv), jax.grad(total)(qkv)))(qkv)

    expected = both()
    chosen = []
    monkeypatch.setattr(
        jax.lax,
        "platform_dependent",
        lambda *arguments, **ways: chosen.append(ways.get("tpu")) or _for_tpu(*arguments, **ways),
    )
    assert_close(both(), expected)
    assert any(chosen)
