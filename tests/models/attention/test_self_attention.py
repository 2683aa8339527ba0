"""The layer of self-attention, where queries have more heads than keys and values; its cache."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from jax.sharding import PartitionSpec as P

from bertjax.base.errors import InputError
from bertjax.models.attention.contract import AttentionPattern, Mask
from bertjax.models.attention.probabilities import ATTENTION
from bertjax.models.attention.self_attention import SelfAttention
from bertjax.models.encoders.cache import empty_cache
from bertjax.models.layers.dense import Precision
from bertjax.models.layers.rotary import rotation
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

B, D, N, H = 3, 10, 6, 4


def _module(shared: int, **changed) -> SelfAttention:
    settings = dict(
        pattern=AttentionPattern(), implementation="einsum", rate=0.0, heads=N, head_width=H
    )
    init = jax.nn.initializers.normal(0.5)
    settings |= dict(qkv_init=init, output_init=init, precision=Precision(), key_value_heads=shared)
    return SelfAttention(**settings | changed)


def _abstract(module: SelfAttention):
    """The shapes of the parameters, with their logical axes."""
    x, mask = jax.ShapeDtypeStruct((1, 2, D), "float32"), Mask(np.ones((1, 2), np.int32))
    init = partial(module.init, mask=mask, deterministic=True)
    return jax.eval_shape(init, jax.random.key(1), x)["params"]


def _params(module: SelfAttention):
    rng = np.random.default_rng(1)
    shapes = meta.unbox(_abstract(module))
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / 2, shapes)


def _case(length: int):
    """Rows of several documents, of which two end with padding."""
    rng = np.random.default_rng(length)
    tokens = np.arange(length) < np.array([[length], [length - 3], [length // 2]])
    numbers = np.cumsum(rng.random((B, length)) < 0.1, 1)
    x = rng.normal(size=(B, length, D)).astype(np.float32)
    return x, Mask(tokens.astype(np.int32), numbers)


def _packed(params):
    """The same parameters with a head of keys and values for each head of queries, by numpy."""
    joined = {}
    for name, query in params["query"].items():
        key_value = params["key_value"][name]
        key_value = np.repeat(key_value, query.shape[-2] // key_value.shape[-2], axis=-2)
        joined[name] = np.concatenate([query[..., None, :, :], key_value], axis=-3)
    return {"qkv": joined, "output": params["output"]}


CASES = {
    "by blocks": (2, 21, dict(pattern=AttentionPattern(window=2), rate=0.3, remat=True)),
    "fused": (1, 13, dict(implementation="fused", pattern=AttentionPattern(causal=True, window=3))),
    # The shape is one of those that kernels compute on TPUs.
    "kernel": (1, 256, dict(implementation="kernel", heads=2, head_width=32, use_bias=False)),
}


@pytest.mark.parametrize("name", others_slow(CASES, "by blocks"))
def test_shared_heads_are_repeated_ones(name):
    """Values, probabilities and gradients, with the same dropout."""
    shared, length, changed = CASES[name]
    x, mask = _case(length)
    module = _module(shared, **changed)
    params = _params(module)
    by = rotation(jnp.arange(length), module.head_width, 100.0)
    sees = mask.keys[:, :, None]

    @partial(jax.jit, static_argnums=0)
    def both(module, params, x):
        def attend(params, x):
            key = jax.random.key(3)
            return module.apply(
                {"params": params},
                *(x, mask, by),
                deterministic=False,
                rngs={"dropout": key},
                mutable=[ATTENTION],
            )

        y, pull, shown = jax.vjp(attend, params, x, has_aux=True)
        return (
            y * sees,
            shown[ATTENTION]["probabilities"][0] * sees[:, None],
            pull(jnp.cos(y) * sees),
        )

    wanted = both(module.clone(key_value_heads=0), _packed(params), x)
    y, probabilities, (of_params, of_x) = both(module, params, x)
    assert_close((y, probabilities, of_x), (wanted[0], wanted[1], wanted[2][1]))
    packed = jax.device_get(wanted[2][0])
    assert_close(of_params["output"], packed["output"])
    for leaf, gradient in packed["qkv"].items():
        query, key_value = np.split(gradient, [1], axis=-3)
        key_value = key_value.reshape(*key_value.shape[:-2], shared, -1, module.head_width).sum(-2)
        assert_close(of_params["query"][leaf], query.squeeze(-3))
        assert_close(of_params["key_value"][leaf], key_value)


def test_a_cache_goes_on_as_all_at_once():
    """Token by token, in texts that are longer than the window; keys are stored rotated."""
    length, shared = 11, 2
    x, mask = _case(length)
    module = _module(shared, pattern=AttentionPattern(causal=True, window=3))
    params = _params(module)
    sizes = dict(key_value_heads=shared, head_width=H)
    sizes |= dict(num_hidden_layers=1, compute_dtype="float32", encoder="some")
    empty = empty_cache(SimpleNamespace(**sizes), B, length)["some"]["encoder"]["layer_0"]

    @jax.jit
    def both(params, x):
        apply = partial(module.apply, deterministic=True)
        by = rotation(jnp.arange(length), H, 100.0)
        whole = apply({"params": params}, x, Mask(mask.keys), by)

        def step(cache, place):
            token = jax.lax.dynamic_slice_in_dim(x, place, 1, axis=1)
            read = jnp.broadcast_to(jnp.arange(length) <= place, (B, length)).astype(jnp.int32)
            by = rotation(jnp.full((B, 1), place), H, 100.0)
            variables = {"params": params, "cache": cache}
            y, changed = apply(variables, token, Mask(read), by, mutable=["cache"])
            return changed["cache"], y[:, 0]

        cache, steps = jax.lax.scan(step, empty["attention"], jnp.arange(length))
        return whole, steps.swapaxes(0, 1), cache

    whole, steps, cache = jax.device_get(both(params, x))
    inside = mask.keys[:, :, None]
    assert_close(steps * inside, whole * inside)
    assert cache["keys"].shape == (B, length, shared, H) and cache["keys"].all()


@pytest.mark.devices(8)
def test_devices_compute_what_one_computes():
    """Each has its heads of queries, and the head of keys and values that they read."""
    module = _module(2, rate=0.3)
    params, boxed = _params(module), _abstract(module)
    x, mask = jax.tree.map(lambda x: np.concatenate([x, x[:1]]), _case(13))
    by = rotation(jnp.arange(13), H, 100.0)

    def both(params, x):
        def attend(params, x):
            rngs = {"dropout": jax.random.key(3)}
            return module.apply({"params": params}, x, mask, by, deterministic=False, rngs=rngs)

        y, pull = jax.vjp(attend, params, x)
        sees = mask.keys[:, :, None]
        return y * sees, pull(jnp.cos(y) * sees)

    expected = jax.jit(both)(params, x)
    placement = Placement(make_mesh(MeshSpec(4, 2)), sharding_layout("tensor"))
    shardings = placement.shardings(boxed)
    assert shardings["key_value"]["kernel"].spec == P(None, None, "model", None)
    with placement.active():
        arrays = jax.device_put((params, x), (shardings, placement.batch))
        found = jax.jit(both)(*arrays)
    assert_close(found, expected)
    whole = Placement(make_mesh(MeshSpec(2, 4)), sharding_layout("tensor"))
    with pytest.raises(InputError, match="kv_heads = 2 does not divide over the 4 devices"):
        whole.shardings({"key_value": boxed["key_value"]})
