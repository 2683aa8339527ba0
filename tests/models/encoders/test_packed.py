"""Packed documents: each one's logits and gradients are those that it has alone."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.fields import INPUTS
from bertjax.models.encoders.presets import ModernBertSpec
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.layers.positions import positions_of
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.training.objective import Rngs
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

# The documents' lengths in each row of 13; the last row has one that fills it.
ROWS = [[5, 3, 4], [7, 6], [2, 2, 1, 3, 4], [13]]
LENGTH, PREDICTED = 13, 4


@pytest.fixture(scope="module")
def packed(spec):
    """A batch of packed rows."""
    rng = np.random.default_rng(2)
    segment_ids = np.array(
        [np.pad(np.repeat(np.arange(len(r)) + 1, r), (0, LENGTH - sum(r))) for r in ROWS]
    )
    there = segment_ids > 0
    ids = np.where(there, rng.integers(1, spec.vocab_size, segment_ids.shape), 0)
    places = [np.sort(rng.choice(sum(row), PREDICTED, replace=False)) for row in ROWS]
    weights = np.ones((len(ROWS), PREDICTED), np.float32)
    weights[1, 3] = 0
    same = np.pad(segment_ids[:, 1:] == segment_ids[:, :-1], ((0, 0), (0, 1))) & there
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": there.astype(np.int32),
        "token_type_ids": np.zeros(ids.shape, np.int32),
        "segment_ids": segment_ids.astype(np.int32),
        "masked_lm_positions": (np.array(places) * weights).astype(np.int32),
        "masked_lm_ids": rng.integers(1, spec.vocab_size, weights.shape).astype(np.int32),
        "masked_lm_weights": weights,
        "target_ids": np.where(same, np.roll(ids, -1, 1), 0).astype(np.int32),
        "target_weights": same.astype(np.float32),
    }


def alone(packed):
    """The same documents with a row for each, which padding fills; and where each came from."""
    found, origins = [], []
    for row, lengths in enumerate(ROWS):
        for start, length in zip(np.cumsum(lengths) - lengths, lengths, strict=True):
            here = slice(start, start + length)
            one = {
                name: np.pad(packed[name][row, here], (0, LENGTH - length))
                for name in ("input_ids", "input_mask", "token_type_ids")
                + ("target_ids", "target_weights")
            }
            position = packed["masked_lm_positions"][row] - start
            weights = packed["masked_lm_weights"][row] * (0 <= position) * (position < length)
            one["masked_lm_positions"] = np.where(weights, position, 0).astype(np.int32)
            one["masked_lm_weights"] = weights.astype(np.float32)
            one["masked_lm_ids"] = packed["masked_lm_ids"][row]
            found.append(one)
            origins.append((row, here))
    return {name: np.stack([one[name] for one in found]) for name in found[0]}, origins


@pytest.fixture(scope="module")
def params(spec):
    """Parameters of the small BERT."""
    return random_params(spec)


def random_params(spec):
    """Parameters with random values in every array."""
    model, inputs = PreTrainingModel(spec, next_sentence=False), text_inputs(spec, B=1, S=5)
    shapes = jax.eval_shape(
        lambda inputs: model.init(jax.random.key(0), inputs, deterministic=True)["params"], inputs
    )
    rng = np.random.default_rng(5)

    def draw(path, leaf):
        mean, deviation = (1, 0.1) if path[-1].key == "scale" else (0, 0.2)
        return rng.normal(mean, deviation, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, nn.unbox(shapes))


@partial(jax.jit, static_argnums=0)
def _apply(spec, params, inputs):
    model = PreTrainingModel(spec, next_sentence=False)
    return model.apply({"params": params}, inputs, deterministic=True)["masked_lm"]


def logits_of(spec, params, batch):
    """Logits of every token, [B, S, V]."""
    inputs = {name: batch[name] for name in INPUTS if name in batch}
    return np.asarray(_apply(spec, params, inputs))


def assert_each_is_as_alone(spec, params, packed):
    """Checks the logits of a packed batch."""
    together = logits_of(spec, params, packed)
    batch, origins = alone(packed)
    separate = logits_of(spec, params, batch)
    assert len(origins) == 11
    for (row, here), logits in zip(origins, separate, strict=True):
        length = here.stop - here.start
        assert_close(together[row, here], logits[:length])


@pytest.mark.parametrize("positions", others_slow(["rotary", "learned"], "learned"))
def test_logits_of_modernbert_are_those_of_each_document_alone(spec, packed, positions):
    modern = ModernBertSpec(
        vocab_size=spec.vocab_size,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=LENGTH,
        local_attention=4,  # by blocks of 4
        global_attn_every_n_layers=2,
        positions=positions,
    )
    assert_each_is_as_alone(modern, random_params(modern), packed)


@pytest.mark.parametrize(
    "switches",
    others_slow(
        [{}, {"attention": "fused"}, {"causal": True, "scan_layers": True, "remat": "layer"}], {}
    ),
    ids=lambda switches: "-".join(switches) or "plain",
)
def test_logits_are_those_of_each_document_alone(spec, params, packed, switches):
    spec = dataclasses.replace(spec, **switches)
    if spec.scan_layers:
        layers = params["bert"]["encoder"].values()
        stacked = {"layers": jax.tree.map(lambda *leaves: np.stack(leaves), *layers)}
        params = params | {"bert": params["bert"] | {"encoder": stacked}}
    assert_each_is_as_alone(spec, params, packed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "packed_form, form",
    [(MaskedLM("packed"), MaskedLM()), (LeftToRight("packed"), LeftToRight())],
    ids=["masked_lm", "left_to_right"],
)
def test_loss_and_gradients_are_those_of_each_document_alone(
    spec, params, packed, packed_form, form
):
    """The loss of a packed batch is the mean over the same tokens as with a row for each."""
    spec = dataclasses.replace(spec, causal=form.causal)

    def loss_and_gradient(objective, batch):
        model, rngs = objective.model(spec), Rngs(jax.random.key(0), deterministic=True)
        batch = {name: batch[name] for name in batch if name in objective.fields}

        @jax.jit
        @jax.value_and_grad
        def mean(params):
            sums, _ = objective.sums(model, params, batch, rngs)
            return sums["mlm_loss"][0] / sums["mlm_loss"][1]

        return mean(params), objective.counts(batch)["mlm_loss"]

    (together, gradient), count = loss_and_gradient(packed_form, packed)
    (separate, expected), same_count = loss_and_gradient(form, alone(packed)[0])
    assert count == same_count == {"masked_lm": 15, "left_to_right": 39}[form.name]
    assert_close(together, separate)
    assert_close(gradient, expected, 1000, share=0.01)


@pytest.mark.parametrize("attention", ["einsum", "fused"])
def test_other_documents_change_no_bit(spec, params, packed, attention):
    """Other tokens in the second document of each row change its logits, and no others."""
    spec = dataclasses.replace(spec, attention=attention)
    second = packed["segment_ids"] == 2
    other = np.where(second, packed["input_ids"] % 90 + 3, packed["input_ids"])
    one, two = (
        logits_of(spec, params, packed | {"input_ids": ids}) for ids in (packed["input_ids"], other)
    )
    rest = (packed["segment_ids"] > 0) & ~second
    np.testing.assert_array_equal(one[rest], two[rest])
    assert np.abs(one[second] - two[second]).max(-1).min() > 1e-3


def test_a_row_of_one_document_is_a_row_that_is_not_packed(spec, params, packed):
    whole = {name: packed[name][3:] for name in packed}
    unpacked = {name: whole[name] for name in whole if name != "segment_ids"}
    assert_close(logits_of(spec, params, whole), logits_of(spec, params, unpacked))


def test_positions_start_anew():
    segment_ids = np.array([[1, 1, 1, 2, 3, 3, 0, 0], [1] * 8, [4, 4, 1, 1, 1, 4, 4, 4]])
    positions = positions_of(segment_ids)
    assert positions.dtype == np.int32
    assert positions.tolist() == [
        [0, 1, 2, 0, 0, 1, 0, 1],
        list(range(8)),
        [0, 1, 0, 1, 2, 0, 1, 2],
    ]
