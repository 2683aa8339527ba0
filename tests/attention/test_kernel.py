"""The TPU kernels of attention, whose instructions JAX executes here, compared with einsum."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.attention import implementations
from bertjax.attention.contract import Mask, Pattern, visible
from bertjax.attention.einsum import einsum_self_attention
from bertjax.attention.implementations import computed_by, self_attention
from bertjax.attention.kernel import kernel_self_attention, serves
from bertjax.encoders.bert.spec import BertSpec
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import sharding_layout

B, SEED, BF16 = 3, jnp.uint32(5), "bfloat16"
by_kernel = partial(kernel_self_attention, interpret=True)


def _case(length: int, heads: int, width: int, packed: bool = False, dtype="float32"):
    """Projections and a mask: odd lengths, and a row without any token."""
    rng = np.random.default_rng(length + heads)
    qkv = jnp.asarray(rng.normal(size=(B, length, 3, heads, width)) * 1.5, dtype)
    tokens = np.arange(length) < np.array([[length - 37], [0], [length]])
    segment_ids = jnp.asarray(np.cumsum(rng.random((B, length)) < 0.03, 1)) if packed else None
    return qkv, Mask(jnp.asarray(tokens), segment_ids)


def _sees(mask: Mask, pattern: Pattern) -> jax.Array:
    """Bool [B, S, 1, 1]: which queries see a key; the outputs of the others have no meaning."""
    length = mask.keys.shape[1]
    seen = np.broadcast_to(visible(mask, pattern, length), (B, 1, length, length))
    return jnp.asarray(seen.any(-1)[:, 0, :, None, None])


def _value_and_gradient(attend, qkv, mask, pattern, rate):
    weights = jnp.cos(jnp.arange(qkv[:, :, 0].size, dtype=jnp.float32))
    sees = _sees(mask, pattern)

    def total(qkv):
        context = jnp.where(sees, attend(qkv, mask, pattern, rate=rate, seed=SEED), 0)
        return (context.astype(jnp.float32).ravel() * weights).sum(), context

    gradient, context = jax.jit(jax.grad(total, has_aux=True))(qkv)
    return [np.asarray(x, np.float64) for x in (context, gradient)]


@pytest.mark.parametrize(
    "length, heads, width, packed, pattern, rate",
    [
        (256, 4, 64, False, Pattern(), 0.1),
        (256, 1, 128, True, Pattern(), 0.1),
        (384, 4, 32, True, Pattern(window=64), 0.0),
        (640, 2, 64, True, Pattern(window=3), 0.2),
        (896, 1, 128, False, Pattern(window=200), 0.0),  # 640 keys for 128 queries
        (256, 2, 64, False, Pattern(causal=True), 0.1),
    ],
)
def test_values_and_gradients(length, heads, width, packed, pattern, rate):
    qkv, mask = _case(length, heads, width, packed)
    wanted = _value_and_gradient(einsum_self_attention, qkv, mask, pattern, rate)
    found = _value_and_gradient(by_kernel, qkv, mask, pattern, rate)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("bfloat16", 5e-3)])
def test_the_values_are_those_of_float64(dtype, tolerance):
    """bfloat16 is compared with the result of the same bfloat16 inputs; einsum is no nearer."""
    qkv, mask = _case(256, 2, 64, packed=True, dtype=dtype)
    query, key, value = np.moveaxis(np.asarray(qkv, np.float64), 2, 0)
    scores = np.einsum("bsnh,btnh->bnst", query, key) / 8
    scores = np.where(visible(mask, Pattern(), 256), scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    sees = np.asarray(_sees(mask, Pattern()))
    totals = np.where(weights.sum(-1, keepdims=True), weights.sum(-1, keepdims=True), 1)
    exact = np.einsum("bnst,btnh->bsnh", weights / totals, value)

    def error(attend):
        context = np.asarray(attend(qkv, mask, Pattern(), rate=0.0, seed=None), np.float64)
        return np.linalg.norm((context - exact) * sees) / np.linalg.norm(exact * sees)

    assert error(by_kernel) < tolerance
    assert error(by_kernel) < 1.5 * error(einsum_self_attention)


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "name, model", [pytest.param("zero1", 1, marks=pytest.mark.slow), ("tensor", 2)]
)
def test_devices_drop_what_one_device_drops(name, model):
    """Rows and heads are split over devices; each device finds its part of the mask."""
    qkv, mask = _case(256, 4, 64)
    qkv, mask = jax.tree.map(lambda x: jnp.concatenate([x, x[:1] + 0, x, x[:1] + 0]), (qkv, mask))
    pattern = Pattern()

    def both(qkv, mask):
        attend = partial(by_kernel, mask=mask, pattern=pattern, rate=0.3, seed=SEED)
        context, gradient_of = jax.vjp(attend, qkv)
        return context, *gradient_of(jnp.cos(context))

    expected = jax.jit(both)(qkv, mask)
    placement = Placement(make_mesh(MeshSpec(data=-1, model=model)), sharding_layout(name))
    with placement.active():
        found = jax.jit(both)(*jax.device_put((qkv, mask), placement.batch))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_what_it_serves():
    assert serves(512, 12, 64, BF16) and serves(256, 1, 128, BF16)
    assert not serves(128, 12, 64, BF16)  # einsum is faster
    assert not serves(320, 12, 64, BF16)
    assert not serves(512, 3, 64, BF16) and not serves(512, 4, 48, BF16)
    # The gradient of 8192 x 3 x 768 numbers fits into VMEM.
    assert serves(8192, 12, 64, BF16)
    assert not serves(8192, 16, 64, BF16) and not serves(8192, 12, 64, "float32")


@pytest.mark.devices(8)
def test_what_computes_is_said():
    spec = BertSpec.named("base", attention="kernel", compute_dtype=BF16)
    assert [computed_by(spec, length, "tpu") for length in (128, 512)] == ["einsum", "kernel"]
    assert computed_by(spec, 512, "cpu") == computed_by(spec, 512, "gpu") == "einsum"
    fused = BertSpec.named("base", attention="fused", attention_probs_dropout_prob=0.0)
    assert computed_by(fused, 512, "tpu") == "fused"
    # Three heads a device do not fill the lanes.
    with Placement(make_mesh(MeshSpec(data=2, model=4)), sharding_layout("tensor")).active():
        assert computed_by(spec, 512, "tpu") == "einsum"


def test_elsewhere_it_is_einsum():
    """On this CPU, and for shapes that the kernels do not serve."""
    for length in (256, 200):
        qkv, mask = _case(length, 2, 64)
        rest = dict(rate=0.2, seed=SEED)
        kernel = implementations.by_kernel("kernel", length, 2, 64, qkv.dtype, Pattern(), 0.2)
        assert kernel == (length == 256)
        how = dict(implementation="kernel", by_kernel=kernel)
        found = self_attention(qkv, mask, Pattern(), **rest, **how)
        np.testing.assert_array_equal(found, einsum_self_attention(qkv, mask, Pattern(), **rest))
