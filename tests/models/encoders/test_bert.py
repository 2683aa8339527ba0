"""The model: its parameters, and that no switch of its computation changes its outputs."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.special import softmax

from bertjax.base.fields import TEXT
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.layers.pooling import take_positions
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.training.model import zeros
from bertjax.training.objective import Rngs
from tests.helpers.closeness import assert_close


def _initializer(spec):
    """A function from a seed to new parameters."""
    model, inputs = PreTrainingModel(spec), zeros(text_inputs(spec, B=1, S=5))

    def init(seed):
        key = jax.random.key(seed)
        return nn.unbox(model.init(key, inputs, deterministic=True)["params"])

    return jax.jit(init)


def _shapes(spec, next_sentence=True):
    model = PreTrainingModel(spec, next_sentence)

    def init(inputs):
        return model.init(jax.random.key(0), inputs, deterministic=True)["params"]

    return nn.unbox(jax.eval_shape(init, text_inputs(spec, B=1, S=8)))


@pytest.fixture(scope="module")
def params(spec):
    """Parameters with random values in every leaf, so that each affects the outputs."""
    rng = np.random.default_rng(5)

    def draw(path, leaf):
        mean, deviation = (1, 0.1) if path[-1].key == "scale" else (0, 0.2)
        return rng.normal(mean, deviation, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, _shapes(spec))


@partial(jax.jit, static_argnums=0)
def _apply(spec, params, inputs):
    model = PreTrainingModel(spec, next_sentence="pooler" in params)
    return model.apply({"params": params}, inputs, deterministic=True)


def _logits(spec, params, batch, **inputs):
    return jax.device_get(_apply(spec, params, batch | inputs))


def _loss_and_gradient(spec, params, batch, key=None):
    objective = MaskedLMNextSentence()
    model, rngs = objective.model(spec), Rngs(key, deterministic=key is None)

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        sums, _ = objective.sums(model, params, batch, rngs)
        return sum(sums[name][0] / sums[name][1] for name in ("mlm_loss", "nsp_loss"))

    return jax.device_get(loss(params))


@pytest.fixture(scope="module")
def default(spec, params, make_batch):
    """The loss and the gradient with all switches at their defaults."""
    return _loss_and_gradient(spec, params, make_batch())


def _stacked(params, layers: int):
    """Converts parameters of unrolled layers to those of scanned layers."""
    encoder = [params["bert"]["encoder"][f"layer_{i}"] for i in range(layers)]
    stack = {"layers": jax.tree.map(lambda *leaves: np.stack(leaves), *encoder)}
    return params | {"bert": params["bert"] | {"encoder": stack}}


# ------------------------------------------------------------------------------ parameters


def _count(spec, next_sentence=True) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(_shapes(spec, next_sentence)))


@pytest.mark.parametrize(
    "size, count",
    [
        # The counts of transformers' BertForPreTraining with the same sizes.
        ("tiny", 4_433_468),
        ("mini", 11_267_900),
        ("small", 29_058_876),
        ("medium", 41_668_412),
        ("base", 110_106_428),
        ("large", 336_226_108),
    ],
)
@pytest.mark.parametrize("scan_layers", [pytest.param(False, marks=pytest.mark.slow), True])
def test_parameter_count(size, count, scan_layers):
    assert _count(BertSpec.named(size, scan_layers=scan_layers)) == count


def test_parameter_count_without_next_sentence():
    """The pooler (768 x 768 + 768) and the head (768 x 2 + 2) are missing."""
    assert _count(BertSpec(), next_sentence=False) == 110_106_428 - (768 * 768 + 768) - (
        768 * 2 + 2
    )


def test_a_padded_vocabulary_adds_its_rows_only():
    extra = 30_592 - 30_522
    assert _count(BertSpec(vocab_multiple=128)) == 110_106_428 + extra * (768 + 1)


def test_initial_values():
    """Weights are normal, cut at two sigmas; LayerNorm scales are 1; biases are 0."""
    params = flatten_dict(_initializer(BertSpec.named("tiny", vocab_size=997))(0), sep="/")
    weights = {}
    for name, leaf in params.items():
        kind = name.rsplit("/", 1)[-1]
        if kind == "scale":
            assert (leaf == 1).all(), name
        elif kind == "bias":
            assert (leaf == 0).all(), name
        else:
            weights[name] = np.asarray(leaf)
    assert len(weights) == 3 + 2 * 4 + 3  # tables; qkv, output, feed-forward; transform and heads
    truncated = 0.02 * 0.8796256610342398  # deviation of a unit normal cut at +-2
    for name, weight in weights.items():
        assert np.abs(weight).max() <= 0.04, name
        error = 1 / np.sqrt(weight.size)
        assert abs(weight.mean()) < 5 * truncated * error, name
        assert abs(weight.std() / truncated - 1) < 5 * error, name
    whole = np.concatenate([weight.ravel() for weight in weights.values()])
    assert whole.std() == pytest.approx(truncated, rel=0.005)
    assert np.abs(whole).max() > 0.0399


def test_initial_values_depend_on_the_key_alone(spec):
    one, same, other = map(_initializer(spec), (3, 3, 4))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one["bert"]["embeddings"]["token"] != other["bert"]["embeddings"]["token"]).all()


# -------------------------------------------------------- how it is computed: no difference


@pytest.mark.slow
@pytest.mark.parametrize(
    "scan_layers, remat",
    [*itertools.product((False, True), ("attention", "layer")), (True, "none")],
)
def test_scan_and_remat_change_nothing(spec, params, make_batch, default, scan_layers, remat):
    batch, (loss, gradient) = make_batch(), default
    if scan_layers:
        params, gradient = _stacked(params, 2), _stacked(gradient, 2)
    switched = dataclasses.replace(spec, scan_layers=scan_layers, remat=remat)
    other_loss, other_gradient = _loss_and_gradient(switched, params, batch)
    assert_close(other_loss, loss)
    assert_close(other_gradient, gradient, 1000, share=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("scan_layers, remat", [(False, "attention"), (True, "layer")])
def test_remat_keeps_the_dropout_masks(spec, params, make_batch, scan_layers, remat):
    batch, key = make_batch(), jax.random.key(9)
    params = _stacked(params, 2) if scan_layers else params
    whole = dataclasses.replace(
        spec,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
        scan_layers=scan_layers,
    )
    loss, gradient = _loss_and_gradient(whole, params, batch, key)
    switched = dataclasses.replace(whole, remat=remat)
    other_loss, other_gradient = _loss_and_gradient(switched, params, batch, key)
    assert_close(other_loss, loss)
    assert_close(other_gradient, gradient, 1000, share=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_is_einsum_attention(spec, params, make_batch, default, causal):
    batch = make_batch()
    spec = dataclasses.replace(spec, causal=causal)
    loss, gradient = _loss_and_gradient(spec, params, batch) if causal else default
    fused = dataclasses.replace(spec, attention="fused")
    other_loss, other_gradient = _loss_and_gradient(fused, params, batch)
    assert_close(other_loss, loss)
    assert_close(other_gradient, gradient, 1000, share=0.01)


def test_vocabulary_padding_changes_nothing(spec, params, make_batch, default):
    batch, (loss, gradient) = make_batch(), default
    padded_spec = dataclasses.replace(spec, vocab_multiple=16)
    rows, extra = spec.vocab_size, padded_spec.padded_vocab_size - spec.vocab_size
    assert extra == 15

    def pad(tree, value):
        """The tree with additional rows `extra` in each vocabulary dimension."""
        flat = flatten_dict(tree)
        out = {
            path: np.concatenate([leaf, np.full((extra, *leaf.shape[1:]), value, np.float32)])
            if leaf.shape[0] == rows
            else leaf
            for path, leaf in flat.items()
        }
        assert sum(out[path].shape != flat[path].shape for path in flat) == 2
        return unflatten_dict(out)

    # These rows would win every prediction and get the gradients.
    padded = pad(params, 50.0)
    other_loss, other_gradient = _loss_and_gradient(padded_spec, padded, batch)
    assert_close(other_loss, loss)
    assert_close(other_gradient, pad(gradient, 0.0), 1000, share=0.01)
    for path, leaf in flatten_dict(other_gradient).items():
        if leaf.shape[0] == rows + extra:
            assert (leaf[rows:] == 0).all(), path

    logits = _logits(padded_spec, padded, batch)["masked_lm"]
    assert logits.shape[-1] == rows + extra
    assert (logits.argmax(-1) < rows).all()
    assert (softmax(logits, -1)[..., rows:] == 0).all()


# ----------------------------------------------------------------------- what it computes


def test_shapes_and_heads(spec, params, make_batch):
    batch = make_batch()
    logits = _logits(spec, params, batch)
    assert {name: x.shape for name, x in logits.items()} == {
        "masked_lm": (6, 4, 97),
        "next_sentence": (6, 2),
    }
    headless = {name: params[name] for name in ("bert", "masked_lm")}
    assert _logits(spec, headless, batch).keys() == {"masked_lm"}
    np.testing.assert_array_equal(_logits(spec, headless, batch)["masked_lm"], logits["masked_lm"])


def test_positions_choose_among_all(spec, params, make_batch):
    batch = make_batch()
    everywhere = _logits(spec, params, batch, masked_lm_positions=None)["masked_lm"]
    assert everywhere.shape == (6, 13, 97)
    chosen = np.take_along_axis(everywhere, batch["masked_lm_positions"][..., None], axis=1)
    actual = _logits(spec, params, batch)["masked_lm"]
    assert_close(actual, chosen)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_take_positions_is_exact(dtype):
    rng = np.random.default_rng(0)
    sequence, positions = (
        jnp.asarray(rng.normal(size=(5, 13, 7)), dtype),
        rng.integers(0, 13, (5, 4)),
    )
    positions[:, 1] = positions[:, 0]  # one place twice

    def total(x):
        taken = take_positions(x, positions)
        return taken.astype("float32").sum(), taken

    gradient, taken = jax.jit(jax.grad(total, has_aux=True))(sequence)
    assert taken.dtype == sequence.dtype
    expected = np.take_along_axis(np.asarray(sequence), positions[..., None], 1)
    np.testing.assert_array_equal(taken, expected)
    times = (positions[..., None] == np.arange(13)).sum(1)
    np.testing.assert_array_equal(gradient, np.broadcast_to(times[..., None], sequence.shape))


def test_padding_does_not_count(spec, params, make_batch):
    """Other tokens and segments at padding do not change the predictions at tokens."""
    batch = make_batch()
    padding = batch["input_mask"] == 0
    other = {
        "input_ids": np.where(padding, 55, batch["input_ids"]),
        "token_type_ids": np.where(padding, 1, batch["token_type_ids"]),
    }
    one, two = _logits(spec, params, batch), _logits(spec, params, batch, **other)
    assert_close(one, two)


@pytest.mark.slow
def test_padding_to_a_longer_length_changes_nothing(spec, params, make_batch):
    batch = make_batch(length=9)
    longer = {name: np.pad(batch[name], ((0, 0), (0, 4))) for name in TEXT}
    one, two = _logits(spec, params, batch), _logits(spec, params, batch, **longer)
    assert_close(one, two)


@pytest.mark.parametrize("attention", ["einsum", "fused"])
def test_causal_attention_sees_nothing_later(spec, params, make_batch, attention):
    batch = make_batch() | {"masked_lm_positions": None, "input_mask": np.ones((6, 13), np.int32)}
    spec = dataclasses.replace(spec, causal=True, attention=attention)
    before = _logits(spec, params, batch)["masked_lm"]
    for position in (1, 6, 12):
        ids = batch["input_ids"].copy()
        ids[:, position:] = (ids[:, position:] + 31) % 97
        after = _logits(spec, params, batch, input_ids=ids)["masked_lm"]
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position:] - before[:, position:]).max(-1).min() > 1e-3


def test_not_causal_sees_both_ways(spec, params, make_batch):
    batch = make_batch() | {"masked_lm_positions": None, "input_mask": np.ones((6, 13), np.int32)}
    before = _logits(spec, params, batch)["masked_lm"]
    ids = batch["input_ids"].copy()
    ids[:, 6] = (ids[:, 6] + 31) % 97
    after = _logits(spec, params, batch, input_ids=ids)["masked_lm"]
    assert np.abs(after - before).max(-1).min() > 1e-4


@pytest.mark.slow
def test_bfloat16_is_near_float32(spec, params, make_batch, default):
    """They differ by 3 % of the logits' deviation; parameters, gradients and logits are float32."""
    batch, (loss, gradient) = make_batch(), default
    half = dataclasses.replace(spec, compute_dtype="bfloat16")
    exact, rounded = _logits(spec, params, batch), _logits(half, params, batch)
    for name, logits in exact.items():
        assert rounded[name].dtype == jnp.float32
        error = rounded[name] - logits
        assert 0 < error.std() < 0.03 * logits.std(), name
    assert {leaf.dtype for leaf in jax.tree.leaves(_shapes(half))} == {jnp.dtype("float32")}
    half_loss, half_gradient = _loss_and_gradient(half, params, batch)
    assert half_loss.dtype == jnp.float32
    assert float(half_loss) == pytest.approx(float(loss), rel=0.01)
    norm = sum(np.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)) ** 0.5
    difference = jax.tree.map(np.subtract, half_gradient, gradient)
    assert {leaf.dtype for leaf in jax.tree.leaves(half_gradient)} == {jnp.dtype("float32")}
    assert sum(np.vdot(leaf, leaf) for leaf in jax.tree.leaves(difference)) ** 0.5 < 0.05 * norm
