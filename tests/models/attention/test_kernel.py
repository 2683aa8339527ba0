"""The TPU kernels of attention, whose instructions JAX executes here, compared with einsum."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.attention.disentangled import distances_of
from bertjax.models.attention.einsum import einsum_self_attention
from bertjax.models.attention.implementations import self_attention
from bertjax.models.attention.kernel.attend import kernel_self_attention, serves
from bertjax.models.attention.kernel.call import bounds_of
from bertjax.models.attention.kernel.form import Dropout, form_of
from bertjax.models.layers.rotary import rotated, rotation
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.slow_cases import others_slow

B, SEED, BF16 = 3, jnp.uint32(5), "bfloat16"
by_kernel = partial(kernel_self_attention, interpret=True)
visible_by = jax.jit(visible, static_argnums=(1, 2))


def _case(length: int, heads: int, width: int, packed: bool = False, dtype="float32"):
    """Projections and a mask: odd lengths, and a row without any token."""
    rng = np.random.default_rng(length + heads)
    qkv = jnp.asarray(rng.normal(size=(B, length, 3, heads, width)) * 1.5, dtype)
    tokens = np.arange(length) < np.array([[length - 37], [0], [length]])
    numbers = (1 + np.cumsum(rng.random((B, length)) < 0.03, 1)) * tokens
    return qkv, Mask(jnp.asarray(tokens), jnp.asarray(numbers) if packed else None)


def _sees(mask: Mask, pattern: AttentionPattern) -> np.ndarray:
    """Bool [B, S, 1, 1]: which outputs have a meaning: of tokens that see a key."""
    length = mask.keys.shape[1]
    seen = visible_by(mask, pattern, length)
    seen = np.broadcast_to(seen, (len(mask.keys), 1, length, length)).any(-1)
    return (seen[:, 0] & np.asarray(mask.keys, bool))[:, :, None, None]


def _value_and_gradient(attend, qkv, mask, pattern, drop):
    weights = np.cos(np.arange(qkv.size // 3, dtype=np.float32))
    sees = _sees(mask, pattern)

    def total(qkv):
        context = jnp.where(sees, attend(qkv, mask, pattern, drop=drop), 0)
        return (context.astype(jnp.float32).ravel() * weights).sum(), context

    return jax.jit(jax.grad(total, has_aux=True))(qkv)


def _compare(qkv, mask, pattern, drop=None, by=None):
    def rotated_einsum(qkv, *rest, **further):
        return einsum_self_attention(qkv if by is None else rotated(qkv, by), *rest, **further)

    wanted = _value_and_gradient(rotated_einsum, qkv, mask, pattern, drop)
    found = _value_and_gradient(partial(by_kernel, rotation=by), qkv, mask, pattern, drop)
    assert_close(found, wanted)


@pytest.mark.parametrize(
    "length, heads, width, packed, pattern, rate, turned, bits",
    others_slow(
        [
            (256, 4, 64, False, AttentionPattern(), 0.1, False, 32),
            (256, 1, 128, True, AttentionPattern(), 0.1, True, 16),
            (384, 4, 32, True, AttentionPattern(window=64), 0.0, False, 32),
            (640, 2, 64, True, AttentionPattern(window=3), 0.2, True, 32),
            # 640 keys for 128 queries
            (896, 1, 128, False, AttentionPattern(window=200), 0.0, False, 32),
            (256, 2, 64, False, AttentionPattern(causal=True), 0.1, True, 32),
            # padded to 384 positions and 4 heads
            (300, 3, 64, True, AttentionPattern(), 0.1, True, 16),
            (1536, 2, 64, True, AttentionPattern(), 0.1, True, 16),  # keys are streamed
            (1536, 2, 64, True, AttentionPattern(causal=True), 0.0, False, 32),
            (1536, 1, 128, True, AttentionPattern(window=500), 0.0, True, 32),
        ],
        (256, 4, 64, False, AttentionPattern(), 0.1, False, 32),
        (640, 2, 64, True, AttentionPattern(window=3), 0.2, True, 32),
    ),
)
def test_values_and_gradients(length, heads, width, packed, pattern, rate, turned, bits):
    by = rotation(jnp.arange(length), width, 100.0) if turned else None
    drop = DropoutSpec(SEED, rate, bits) if rate else None
    _compare(*_case(length, heads, width, packed), pattern, drop, by)


@pytest.fixture
def roll_in_one(monkeypatch):
    """JAX would roll row by row what a TPU rolls at once, and its programs would compile slowly."""
    one_by_one = pltpu.roll

    def roll(x, shift, axis, *, stride=None, stride_axis=None):
        if stride is None:
            return one_by_one(x, shift, axis)
        row, column = (jax.lax.broadcasted_iota(jnp.int32, x.shape, i) for i in (0, 1))
        return jnp.take_along_axis(x, (column - shift - stride * row) % x.shape[1], 1)

    both = [
        jax.jit(partial(by, shift=1, axis=1, stride=1, stride_axis=0))(np.arange(15).reshape(3, 5))
        for by in (roll, one_by_one)
    ]
    np.testing.assert_array_equal(*both)
    monkeypatch.setattr(pltpu, "roll", roll)


def _with_distances(attend, qkv, vectors, mask, drop=None):
    """The outputs, and the gradients of contents and of the vectors of distances."""
    sees = _sees(mask, AttentionPattern())

    def total(qkv, vectors):
        distances = distances_of(vectors, qkv.shape[1], 100)
        context = attend(qkv, mask, AttentionPattern(), distances=distances, drop=drop)
        context = jnp.where(sees, context, 0)
        return (context * jnp.cos(jnp.arange(context.size)).reshape(context.shape)).sum(), context

    return jax.jit(jax.grad(total, (0, 1), has_aux=True))(qkv, vectors)


def _vectors(heads: int, width: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(heads).normal(size=(64, 3, heads, width)), "float32")


@pytest.mark.usefixtures("roll_in_one")
@pytest.mark.parametrize(
    "length, heads, width, packed, rate, bits",
    others_slow(
        [
            (256, 1, 128, True, 0.1, 32),
            (256, 4, 32, False, 0.0, 32),
            (300, 3, 64, True, 0.1, 16),  # padded to 384 positions and 4 heads
            (640, 2, 64, True, 0.0, 32),  # five steps of queries
            (1024, 2, 64, True, 0.1, 16),  # keys are streamed
        ],
        (256, 1, 128, True, 0.1, 32),
    ),
)
def test_disentangled(length, heads, width, packed, rate, bits):
    qkv, mask = _case(length, heads, width, packed)
    drop = DropoutSpec(SEED, rate, bits) if rate else None
    arguments = qkv, _vectors(heads, width), mask, drop
    wanted = _with_distances(partial(self_attention, way="einsum"), *arguments)
    assert_close(_with_distances(by_kernel, *arguments), wanted)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([512, 1024], id="on the borders of blocks", marks=pytest.mark.slow),
        pytest.param([511, 513, 1023, 1025], id="next to the borders"),
        pytest.param([1536], id="one document", marks=pytest.mark.slow),
        pytest.param(range(5, 1530, 5), id="hundreds of documents", marks=pytest.mark.slow),
    ],
)
def test_documents(ends):
    """The number of documents and where they end; the second row has no token, the first fewer."""
    qkv, mask = _case(1536, 2, 64)
    numbers = np.searchsorted(np.asarray(ends), np.arange(1536), side="right") + 1
    numbers = jnp.asarray(numbers * np.asarray(mask.keys))
    _compare(qkv, mask._replace(segment_ids=numbers), AttentionPattern())


def test_only_blocks_of_the_same_documents_are_computed():
    """The bounds contain every block with a key that is seen, and end with such blocks."""
    rng = np.random.default_rng(1)
    numbers = 1 + np.cumsum(rng.random((2, 4096)) < 1 / 700, 1)
    tokens = np.arange(4096) < np.array([[4096], [3000]])
    codes = np.stack([np.where(tokens, numbers, padding) for padding in (-1, -2)], 1)
    for pattern in (
        AttentionPattern(),
        AttentionPattern(causal=True),
        AttentionPattern(window=700),
    ):
        drop = Dropout(0.0, 32, paired=True, stride=4096)
        form = form_of(
            4096, 4096, 64, pattern, drop, rotary=False, by_distance=False, backward=False
        )
        bounds = jax.jit(bounds_of, static_argnums=(2, 3))
        found = np.asarray(bounds(codes, np.int32(0), 4096, form))
        mask = Mask(jnp.asarray(tokens), jnp.asarray(numbers))
        seen = np.asarray(visible_by(mask, pattern, 4096))[:, 0] & tokens[:, :, None]
        seen = seen.reshape(2, 8, 512, 8, 512).any((2, 4))  # [B, blocks of queries, of keys]
        for row, block in itertools.product(range(2), range(8)):
            (blocks,) = np.nonzero(seen[row, block])
            wanted = [blocks[0], blocks[-1] + 1] if len(blocks) else found[row, block, :1].repeat(2)
            np.testing.assert_array_equal(found[row, block], wanted)


@pytest.mark.parametrize(
    "length, heads, pattern",
    others_slow([(384, 4, AttentionPattern(window=64)), (1024, 4, AttentionPattern())]),
)
def test_no_array_is_read_before_it_is_written(length, heads, pattern):
    """In a simulated memory, which begins with NaN and finds copies that race with programs."""
    qkv, mask = jax.tree.map(lambda x: x[::2], _case(length, heads, 64, packed=True))
    by = rotation(jnp.arange(length), 64, 100.0)
    memory = pltpu.InterpretParams(uninitialized_memory="nan", detect_races=True)
    attend = partial(kernel_self_attention, mask=mask, pattern=pattern, rotation=by)

    def both(interpret):
        context, gradient_of = jax.vjp(partial(attend, interpret=interpret), qkv)
        return context, *gradient_of(jnp.cos(context))

    assert_close(both(memory), both(True))


@pytest.mark.parametrize("dtype, tolerance", [("float32", rounding(1)), ("bfloat16", 5e-3)])
def test_the_values_are_those_of_float64(dtype, tolerance):
    """bfloat16 is compared with the result of the same bfloat16 inputs; einsum is no nearer."""
    qkv, mask = _case(256, 2, 64, packed=True, dtype=dtype)
    query, key, value = np.moveaxis(np.asarray(qkv, np.float64), 2, 0)
    scores = np.einsum("bsnh,btnh->bnst", query, key) / 8
    scores = np.where(visible_by(mask, AttentionPattern(), 256), scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    sees = _sees(mask, AttentionPattern())
    totals = np.where(weights.sum(-1, keepdims=True), weights.sum(-1, keepdims=True), 1)
    exact = np.einsum("bnst,btnh->bsnh", weights / totals, value)

    def error(attend):
        compiled = jax.jit(lambda qkv: attend(qkv, mask, AttentionPattern()))
        context = np.asarray(compiled(qkv), np.float64)
        return np.linalg.norm((context - exact) * sees) / np.linalg.norm(exact * sees)

    assert error(by_kernel) < tolerance
    assert error(by_kernel) < 1.5 * error(einsum_self_attention)


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "name, model, length, heads, pattern, rate",
    others_slow(
        [
            ("zero1", 1, 256, 4, AttentionPattern(), 0.3),
            # 3 heads of a device do not fill its lanes
            ("tensor", 2, 256, 6, AttentionPattern(), 0.3),
            ("sequence", 2, 512, 3, AttentionPattern(), 0.3),  # keys are gathered
            ("sequence", 4, 512, 2, AttentionPattern(causal=True), 0.0),
            # keys come from the neighbours
            ("sequence", 4, 512, 2, AttentionPattern(window=64), 0.0),
            ("sequence", 4, 512, 2, AttentionPattern(window=200), 0.0),  # and from beyond
        ],
        ("tensor", 2, 256, 6, AttentionPattern(), 0.3),
    ),
)
def test_devices_compute_what_one_device_computes(name, model, length, heads, pattern, rate):
    """Rows, heads and sequences are split over devices; each finds its slice of the mask."""
    qkv, mask = _case(length, heads, 64, packed=True)
    qkv, mask = jax.tree.map(lambda x: jnp.concatenate([x, x, x[:2]]), (qkv, mask))
    by = rotation(jnp.arange(length), 64, 100.0)

    def both(qkv, mask):
        attend = partial(by_kernel, mask=mask, pattern=pattern, rotation=by)
        attend = partial(attend, drop=DropoutSpec(SEED, rate, 16) if rate else None)
        context, gradient_of = jax.vjp(attend, qkv)
        weights = jnp.cos(context) * mask.keys[:, :, None, None]
        return context * mask.keys[:, :, None, None], *gradient_of(weights)

    expected = jax.jit(both)(qkv, mask)
    placement = Placement(make_mesh(MeshSpec(data=-1, model=model)), sharding_layout(name))
    with placement.active():
        found = jax.jit(both)(*jax.device_put((qkv, mask), placement.batch))
    assert_close(found, expected)


@pytest.mark.devices(8)
@pytest.mark.usefixtures("roll_in_one")
@pytest.mark.parametrize(
    "name, length, heads", others_slow([("tensor", 256, 2), ("sequence", 512, 1)])
)
def test_devices_compute_disentangled_attention(name, length, heads):
    """Each adds to the gradients of the vectors of distances."""
    qkv, mask = _case(length, heads, 128, packed=True)
    qkv, mask = jax.tree.map(lambda x: jnp.concatenate([x, x, x[:2]]), (qkv, mask))
    vectors, drop = _vectors(heads, 128), DropoutSpec(SEED, 0.3, 16)
    expected = _with_distances(by_kernel, qkv, vectors, mask, drop)
    placement = Placement(make_mesh(MeshSpec(data=-1, model=2)), sharding_layout(name))
    with placement.active():
        qkv, mask = jax.device_put((qkv, mask), placement.batch)
        found = _with_distances(by_kernel, qkv, vectors, mask, drop)
    assert_close(found, expected)


def test_what_it_serves():
    assert all(serves(length, 64, BF16) for length in (256, 300, 512, 1024, 8192, 32_768))
    assert not serves(128, 64, BF16)  # einsum is faster
    assert not serves(65_536, 64, BF16)  # the keys do not fit into VMEM
    assert serves(16_384, 64, "float32") and not serves(32_768, 64, "float32")
    # The gradients of distances of all heads stay in VMEM.
    assert serves(1024, 64, BF16, distances=True) and not serves(1100, 64, BF16, distances=True)
    assert serves(512, 128, BF16) and serves(512, 32, BF16) and not serves(512, 48, BF16)
