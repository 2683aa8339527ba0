"""The GPU kernels of attention, whose operations JAX executes here, compared with float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import triton
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.attention.gpu_kernel import gpu_self_attention, serves
from bertjax.models.layers.dropout import keep_mask
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

B, SEED = 3, jnp.uint32(5)
by_kernel = partial(gpu_self_attention, interpret=True)
visible_by = jax.jit(visible, static_argnums=(1, 2))
kept_by = jax.jit(keep_mask, static_argnums=(1, 2, 3))


def _case(length: int, heads: int, width: int, packed: bool = False):
    """Query, key, value and the gradient of the context; and a mask: a row has no token."""
    rng = np.random.default_rng(length + heads)
    arrays = rng.normal(size=(4, B, length, heads, width)) * 1.5
    tokens = np.arange(length) < np.array([[length - 37], [0], [length]])
    numbers = (1 + np.cumsum(rng.random((B, length)) < 0.03, 1)) * tokens
    mask = Mask(jnp.asarray(tokens), jnp.asarray(numbers) if packed else None)
    arrays[3] *= tokens[:, :, None, None]  # the output of padding has no meaning
    return arrays.astype(np.float32), mask


def _exact(arrays, mask, pattern, drop):
    """The context and the gradients of query, key and value, by numpy in float64."""
    query, key, value, gradient = np.asarray(arrays, np.float64).transpose(0, 1, 3, 2, 4)
    scale = query.shape[3] ** -0.5
    seen = np.asarray(visible_by(mask, pattern, query.shape[2]))
    scores = np.where(seen, query @ key.swapaxes(2, 3) * scale, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    factor = 1.0
    if drop:
        kept = kept_by(drop.seed, weights.shape, drop.rate, drop.bits)
        factor = np.asarray(kept) / (1 - drop.rate)
    context = weights * factor @ value * np.asarray(mask.keys)[:, None, :, None]
    d_weights = gradient @ value.swapaxes(2, 3) * factor
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True)) * scale
    d_value = (weights * factor).swapaxes(2, 3) @ gradient
    results = context, d_scores @ key, d_scores.swapaxes(2, 3) @ query, d_value
    return [x.swapaxes(1, 2) for x in results]


@partial(jax.jit, static_argnums=(2,))
def _found(arrays, mask, pattern, drop):
    """The same by the kernels."""
    *inputs, gradient = arrays
    attend = partial(by_kernel, mask=mask, pattern=pattern, drop=drop)
    context, gradient_of = jax.vjp(attend, *inputs)
    return context * mask.keys[:, :, None, None], *gradient_of(gradient)


@pytest.mark.parametrize(
    "length, heads, width, packed, pattern, rate, bits",
    others_slow(
        [
            (130, 3, 64, True, AttentionPattern(), 0.1, 16),
            (100, 2, 32, False, AttentionPattern(causal=True, window=70), 0.2, 32),
            (300, 2, 64, True, AttentionPattern(window=9), 0.2, 32),
            (300, 1, 32, True, AttentionPattern(causal=True), 0.1, 16),
            (128, 2, 64, False, AttentionPattern(), 0.1, 32),  # no block has a place after the end
            (40, 1, 128, False, AttentionPattern(), 0.0, 32),  # one block
            (500, 1, 32, True, AttentionPattern(), 0.0, 32),
        ],
        (130, 3, 64, True, AttentionPattern(), 0.1, 16),
        (100, 2, 32, False, AttentionPattern(causal=True, window=70), 0.2, 32),
    ),
)
def test_values_and_gradients(length, heads, width, packed, pattern, rate, bits):
    arrays, mask = _case(length, heads, width, packed)
    drop = DropoutSpec(SEED, rate, bits) if rate else None
    assert_close(
        list(_found(arrays, mask, pattern, drop)), list(_exact(arrays, mask, pattern, drop))
    )


@pytest.mark.parametrize("bits", others_slow([32, 16], 32))
def test_what_is_kept_is_that_of_every_implementation(bits):
    """By values and gradients that are 1 at one place, context and gradient show what is kept."""
    length, heads, rate = 70, 3, 0.3
    ones = np.broadcast_to(np.eye(length, 128)[:, None], (B, length, heads, 128))
    nothing = np.zeros_like(ones)
    arrays = np.stack([nothing, nothing, ones, ones]).astype(np.float32)
    mask = Mask(jnp.ones((B, length), bool))
    context, _, _, d_value = _found(arrays, mask, AttentionPattern(), DropoutSpec(SEED, rate, bits))
    kept = np.asarray(kept_by(SEED, (B, heads, length, length), rate, bits))
    weights = kept.transpose(0, 2, 1, 3) / (length * (1 - rate))  # [B, queries, N, keys]
    assert_close(context[..., :length], weights)
    assert_close(d_value[..., :length], weights.swapaxes(1, 3))


@pytest.mark.devices(8)
def test_devices_compute_what_one_device_computes():
    """Rows and heads are split over devices; each finds its slice of the mask."""
    arrays, mask = _case(50, 6, 32, packed=True)
    arrays, mask = arrays[:, [0, 1, 2, 0]], jax.tree.map(lambda x: x[jnp.array([0, 1, 2, 0])], mask)
    drop = DropoutSpec(SEED, 0.3, 16)
    expected = _exact(arrays, mask, AttentionPattern(), drop)
    placement = Placement(make_mesh(MeshSpec(data=-1, model=2)), sharding_layout("tensor"))
    with placement.active():
        split_arrays = jax.device_put((list(arrays), mask), placement.batch)
        found = _found(*split_arrays, AttentionPattern(), drop)
    assert_close(list(found), list(expected))


@pytest.mark.skipif(
    not hasattr(triton, "get_gpu_info"), reason="this JAX asks the GPU for its capability"
)
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_they_are_lowered_for_gpus_without_one():
    x = jax.ShapeDtypeStruct((2, 300, 4, 64), jnp.bfloat16)
    codes = jax.ShapeDtypeStruct((2, 300), jnp.int32)
    seed = jax.ShapeDtypeStruct((), jnp.uint32)

    def both(query, key, value, keys, segment_ids, seed):
        rest = Mask(keys, segment_ids), AttentionPattern(window=64)
        attend = lambda *x: gpu_self_attention(*x, *rest, drop=DropoutSpec(seed, 0.1, 16))  # noqa: E731
        context, gradient_of = jax.vjp(attend, query, key, value)
        return gradient_of(context)

    h100 = AbstractDevice(device_kind="NVIDIA H100", platform="gpu", num_cores=None)
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=h100)):
        traced = jax.jit(both).trace(x, x, x, codes, codes, seed)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("__gpu$xla.gpu.triton") == 3
    assert "300x300" not in text  # no array has a value for each pair


def test_what_they_serve():
    assert all(serves(length, width, jnp.bfloat16) for length in (7, 8192) for width in (32, 64))
    assert serves(128, 128, jnp.float16)
    assert not serves(128, 64, jnp.float32) and not serves(128, 48, jnp.bfloat16)
