"""Attention and its explicit gradient, compared with the formula and with JAX's gradient."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask, visible
from bertjax.models.attention.einsum import einsum_self_attention
from bertjax.models.attention.fused import fused_self_attention
from bertjax.models.attention.implementations import attention
from bertjax.models.attention.probabilities import probabilities
from bertjax.models.layers.dropout import keep_mask
from bertjax.models.layers.rotary import rotated, rotation
from tests.helpers.closeness import assert_close

B, S, N, H = 3, 7, 2, 5
SEED = jnp.uint32(11)


def _reference(qkv, mask, rate):
    """Computes softmax(Q K^T / sqrt(H)) V, with dropout after softmax as in the reference."""
    query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bsnh,btnh->bnst", query, key) / np.sqrt(qkv.shape[-1])
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1)
    if rate:
        weights = jnp.where(keep_mask(SEED, weights.shape, rate), weights / (1 - rate), 0)
    return jnp.einsum("bnst,btnh->bsnh", weights, value)


@pytest.fixture(scope="module")
def qkv():
    return jnp.asarray(np.random.default_rng(0).normal(size=(B, S, 3, N, H)) * 2, jnp.float32)


# The document of each token, -1 for padding: a token sees only its document, and padding nothing.
PACKED = np.array([[0, 0, 0, 1, 1, -1, -1], [0, 1, 1, 1, 1, 1, 1], [-1] * 7])
MASKS = {
    "padding": np.arange(S) < np.array([7, 4, 1])[:, None, None, None],
    "causal": np.tril(np.ones((1, 1, S, S), bool)),
    "nothing to see": np.arange(S) < np.array([7, 0, 1])[:, None, None, None],
    "packed": ((PACKED[:, :, None] == PACKED[:, None]) & (PACKED[:, None] >= 0))[:, None],
    "window": np.abs(np.arange(S)[:, None] - np.arange(S))[None, None] <= 2,
}
ALL = np.ones((B, S), np.int32)
# The same in the terms of the contract.
SEEN = {
    "padding": (Mask(MASKS["padding"][:, 0, 0].astype(np.int32)), AttentionPattern()),
    "causal": (Mask(ALL), AttentionPattern(causal=True)),
    "nothing to see": (Mask(MASKS["nothing to see"][:, 0, 0]), AttentionPattern()),
    "packed": (Mask(PACKED >= 0, segment_ids=PACKED), AttentionPattern()),
    "window": (Mask(ALL), AttentionPattern(window=2)),
}


def _attend(qkv, name, drop=None):
    mask, pattern = SEEN[name]
    mask = jax.tree.map(jnp.asarray, mask)
    return einsum_self_attention(qkv, mask, pattern, drop=drop)


@pytest.mark.parametrize("name", MASKS)
def test_what_a_query_sees(name):
    mask, pattern = SEEN[name]
    found = visible(jax.tree.map(jnp.asarray, mask), pattern, S)
    np.testing.assert_array_equal(
        np.broadcast_to(found, (B, 1, S, S)), np.broadcast_to(MASKS[name], (B, 1, S, S))
    )


def test_all_at_once():
    mask = jax.tree.map(jnp.asarray, SEEN["packed"][0])
    expected = MASKS["packed"] & MASKS["causal"] & MASKS["window"]
    np.testing.assert_array_equal(
        visible(mask, AttentionPattern(causal=True, window=2), S), expected
    )


@pytest.mark.parametrize("name", MASKS)
def test_fused_is_the_same_function(qkv, name):
    """The outputs are equal if a query sees a key; otherwise each has a mean of its own."""
    mask, pattern = SEEN[name]
    mask = jax.tree.map(jnp.asarray, mask)
    sees = np.broadcast_to(MASKS[name].any(-1), (B, 1, S))[:, 0]
    both = jax.jit(lambda qkv: (fused_self_attention(qkv, mask, pattern), _attend(qkv, name)))
    found, wanted = jax.device_get(both(qkv))
    assert_close(found[sees], wanted[sees])


def test_fused_computes_in_bfloat16_without_a_gpu(qkv):
    """To the rounding of bfloat16, and without cuDNN, which is not here."""
    mask, pattern = SEEN["window"]
    both = jax.jit(lambda qkv: fused_self_attention(qkv, Mask(jnp.asarray(mask.keys)), pattern))
    found = both(qkv.astype(jnp.bfloat16))
    assert found.dtype == jnp.bfloat16
    assert_close(found, both(qkv), terms=32, dtype=jnp.bfloat16)


@pytest.mark.parametrize("name", MASKS)
def test_probabilities_are_those_that_attention_computes_with(qkv, name):
    """Times the values, they are its result; also of rotated queries and keys."""
    mask, pattern = SEEN[name]
    qkv = qkv[..., :4]  # an even width can be rotated

    @partial(jax.jit, static_argnums=1)
    def both(qkv, turned):
        by = rotation(jnp.arange(S), 4, theta=100.0) if turned else None
        wanted = einsum_self_attention(rotated(qkv, by) if turned else qkv, mask, pattern)
        return probabilities(qkv, mask, pattern, by), wanted

    for turned in (False, True):
        shares, wanted = jax.device_get(both(qkv, turned))
        assert_close(shares.sum(-1), np.ones((B, N, S)))
        sees = np.broadcast_to(MASKS[name].any(-1)[:, 0], (B, S))
        read = np.einsum("bnst,btnh->bsnh", shares, qkv[:, :, 2])
        assert_close(read[sees], wanted[sees])


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("name", MASKS)
def test_value_and_gradient(qkv, name, rate):
    mask = MASKS[name]

    def result(qkv):
        return _attend(qkv, name, DropoutSpec(SEED, rate) if rate else None)

    towards = jnp.asarray(np.random.default_rng(1).normal(size=(B, S, N, H)), jnp.float32)

    @partial(jax.jit, static_argnums=0)
    def value_and_gradient(attend, qkv):
        value, pull = jax.vjp(attend, qkv)
        return value, pull(towards)

    expected = value_and_gradient(lambda qkv: _reference(qkv, mask, rate), qkv)
    assert_close(value_and_gradient(result, qkv), expected)


@pytest.mark.parametrize("name", ["nothing to see", "packed"])
def test_a_query_that_sees_no_key_has_no_gradient(qkv, name):
    """Masked scores are constant, so query and key get no gradient, as with `jnp.where`."""
    mask = MASKS[name]
    blind = ~np.broadcast_to(mask.any(-1), (B, 1, S))[:, 0]

    def total(qkv):  # of the outputs of those queries only
        return jnp.square(_attend(qkv, name)[blind]).sum()

    of_query, of_key, of_value = np.moveaxis(jax.jit(jax.grad(total))(qkv), 2, 0)
    assert blind.any() and not of_query.any() and not of_key.any()
    assert of_value.any()


def test_scores_of_any_size(qkv):
    """If each row's highest score were not subtracted, exp would overflow or lose the whole row."""
    reference = jax.jit(lambda qkv: _reference(qkv, MASKS["padding"], 0.0))
    attend = jax.jit(lambda qkv: _attend(qkv, "padding"))
    exact = np.round(np.asarray(qkv[..., :4]) * 64) / 64  # few bits: no score is rounded
    for shift in (-300, 300):
        large = np.stack(
            [np.full_like(exact[:, :, 0], 8), exact[:, :, 1] + shift, exact[:, :, 2]], 2
        )
        assert_close(attend(large), reference(large))


def test_one_array_of_scores_is_kept_for_the_gradient(qkv):
    """The array is bfloat16 [B, N, S, S]; its sign stores the dropout mask."""
    narrow = qkv.astype(jnp.bfloat16)
    attend = lambda qkv: _attend(qkv, "padding", DropoutSpec(SEED, 0.4))  # noqa: E731
    pull = jax.jit(lambda qkv: jax.vjp(attend, qkv)[1])(narrow)
    shapes = [leaf for leaf in jax.tree.leaves(pull) if getattr(leaf, "shape", ()) == (B, N, S, S)]
    assert [leaf.dtype for leaf in shapes] == [jnp.bfloat16]
    dropped = np.signbit(np.asarray(shapes[0], np.float32))
    visible = np.broadcast_to(MASKS["padding"], dropped.shape)
    np.testing.assert_array_equal(
        ~dropped[visible], np.asarray(keep_mask(SEED, dropped.shape, 0.4))[visible]
    )


# ------------------------------------------------- keys of another length than the queries

T = 11
PLACES = np.arange(T) - np.arange(T - S, T)[:, None]  # the last query stands at the last key
OF_KEYS = np.sort(np.random.default_rng(4).integers(0, 3, (B, T)), 1)
OF_QUERIES = np.sort(np.random.default_rng(5).integers(0, 3, (B, S)), 1)
ROOMS = np.arange(T) < np.array([[T], [6], [9]])  # padding after the keys
ANY = np.random.default_rng(6).random((B, N, S, T)) < 0.6
# The arguments of attention, and which keys queries see by them.
GIVEN = {
    "padding": (dict(mask=ROOMS), ROOMS[:, None, None]),
    "any mask": (dict(mask=ANY), ANY),
    "segment ids": (
        dict(mask=ROOMS, segment_ids=OF_KEYS, query_segment_ids=OF_QUERIES),
        (ROOMS[:, None] & (OF_QUERIES[:, :, None] == OF_KEYS[:, None]))[:, None],
    ),
    "causal": (dict(mask=ROOMS, causal=True), ROOMS[:, None, None] & (PLACES <= 0)),
    "window": (dict(mask=ROOMS, window=2), ROOMS[:, None, None] & (np.abs(PLACES) <= 2)),
}


@pytest.mark.parametrize("implementation", ["einsum", "fused"])
@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize("name", GIVEN)
def test_value_and_gradients_of_query_key_value_and_bias(name, rows, implementation):
    """Those of `jax.nn.dot_product_attention`, at the queries that see a key."""
    masks, seen = GIVEN[name]
    masks = {key: jnp.asarray(x) if np.ndim(x) else x for key, x in masks.items()}
    seen = np.broadcast_to(seen, (B, N, S, T))
    assert seen.any(-1).mean() > 0.5
    rng = np.random.default_rng(3)
    shapes = (B, S, N, H), (B, T, N, H), (B, T, N, H), (rows, N, S, T)
    arrays = [jnp.asarray(rng.normal(size=shape) * 2, jnp.float32) for shape in shapes]
    towards = rng.normal(size=(B, S, N, H)) * seen.any(-1).swapaxes(1, 2)[..., None]

    def result(*arrays, bias):
        return attention(*arrays, bias=bias, implementation=implementation, **masks)

    def reference(*arrays, bias):
        return jax.nn.dot_product_attention(*arrays, bias, jnp.asarray(seen))

    def total(attend, *arrays):
        context = attend(*arrays[:3], bias=arrays[3])
        return (context * towards).sum(), context * (towards != 0)

    both = jax.value_and_grad(total, argnums=(1, 2, 3, 4), has_aux=True)
    with_gradients = jax.jit(both, static_argnums=0)
    (_, value), gradients = with_gradients(result, *arrays)
    (_, expected), expected_gradients = with_gradients(reference, *arrays)
    assert all(np.abs(each).max() > 0.1 for each in expected_gradients)
    assert_close((value, gradients), (expected, expected_gradients))


@pytest.mark.parametrize("name", MASKS)
def test_apart_it_is_self_attention(qkv, name):
    """With the same dropout, bit for bit."""
    mask, pattern = SEEN[name]
    seen = dict(mask=jnp.asarray(mask.keys), segment_ids=mask.segment_ids)
    query, key, value = jnp.moveaxis(qkv, 2, 0)
    found = attention(query, key, value, **seen, **pattern._asdict(), drop=DropoutSpec(SEED, 0.4))
    np.testing.assert_array_equal(found, _attend(qkv, name, DropoutSpec(SEED, 0.4)))


@pytest.mark.parametrize("implementation", ["einsum", "fused"])
@pytest.mark.parametrize("shared", [1, 2])
def test_heads_of_queries_share_keys_and_values(shared, implementation):
    """Values and gradients are those of numpy's repeated heads; dropout has the same bits."""
    heads, rng = 6, np.random.default_rng(7)
    shapes = (B, S, heads, H), (B, T, shared, H), (B, T, shared, H), (1, heads, S, T)
    query, key, value, bias = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    masks = dict(mask=ROOMS, segment_ids=OF_KEYS, query_segment_ids=OF_QUERIES, window=7)
    seen = GIVEN["segment ids"][1] & (np.abs(PLACES) <= 7)
    sees = np.broadcast_to(seen.any(-1).swapaxes(1, 2)[..., None], (B, S, 1, 1))
    towards = (rng.normal(size=query.shape) * sees).astype(np.float32)
    drop = DropoutSpec(SEED, 0.3) if implementation == "einsum" else None

    @jax.jit
    def both(query, key, value, bias):
        def attend(query, key, value, bias):
            how = dict(bias=bias, drop=drop, implementation=implementation)
            return attention(query, key, value, **masks, **how)

        value, pull = jax.vjp(attend, query, key, value, bias)
        return value * sees, pull(jnp.asarray(towards))

    again = [np.repeat(x, heads // shared, axis=2) for x in (key, value)]
    wanted, (of_query, *others, of_bias) = jax.device_get(both(query, *again, bias))
    others = [x.reshape(B, T, shared, -1, H).sum(3) for x in others]
    found, gradients = jax.device_get(both(query, key, value, bias))
    assert_close(found, wanted)
    assert_close(gradients, (of_query, *others, of_bias))
    if not drop:
        scores = np.einsum("bsnh,btnh->bnst", query, again[0]) * H**-0.5 + bias
        weights = softmax(np.where(seen, scores, -1e30), -1)
        assert_close(found, np.einsum("bnst,btnh->bsnh", weights, again[1]) * sees)
