"""The objective permutation: its loss, its memory, and the same on one device and on many."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.xlnet.spec import XlnetSpec
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.permutation import PermutationLM
from bertjax.training.objective import Rngs
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import data_parallel, make_placement
from bertjax.training.step import means
from tests.helpers.carried import train_three_batches
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.slow_cases import others_slow

ROWS, LENGTH, REUSE, MEMORY = 8, 11, 5, 7
SPEC = XlnetSpec(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    initializer_range=0.3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_THIRDS = ("early_loss", "middle_loss", "late_loss")
OBJECTIVE = PermutationLM(reuse=REUSE, memory=MEMORY, one_in=3)


def _batch(number: int) -> dict[str, np.ndarray]:
    """Two predicted tokens in a row's first section, one in the second, and an unused place."""
    rng = np.random.default_rng(number)
    order = np.zeros((ROWS, LENGTH), np.int32)
    order[:, REUSE:] = REUSE + 1
    places = np.tile(np.array([0, REUSE - 1, REUSE, 0], np.int32), (ROWS, 1))
    order[:, [0, REUSE - 1]], order[1::2, [0, REUSE - 1]] = [2, 5], [4, 1]
    order[:, REUSE] = REUSE + 2 + np.arange(ROWS) % (LENGTH - REUSE)
    ids = rng.integers(0, 40, (ROWS, LENGTH)).astype(np.int32)
    weights = np.tile(np.array([1, 1, 1, 0], np.float32), (ROWS, 1))
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
        "order": order,
        "masked_lm_positions": places,
        "masked_lm_ids": (np.take_along_axis(ids, places, 1) * weights).astype(np.int32),
        "masked_lm_weights": weights,
    }


@pytest.fixture(scope="module")
def params():
    return nn.unbox(jax.jit(OBJECTIVE.model(SPEC).init)(jax.random.key(1)))


@partial(jax.jit, static_argnames="objective")
def _compute(params, batch, objective):
    rngs = Rngs(jax.random.key(0), deterministic=True)
    return objective.sums(objective.model(SPEC), params, batch, rngs)


def _sums(params, batch, objective=OBJECTIVE):
    sums, carry = jax.device_get(_compute(params, batch, objective))
    return means(sums), carry


@jax.jit
def _logits(params, batch):
    return OBJECTIVE.model(SPEC)(params, batch)["masked_lm"]


def _memory(value=0.0):
    shape = OBJECTIVE.carried(OBJECTIVE.model(SPEC))["memory"].shape
    assert shape == (2, MEMORY, 16)
    return {"memory": np.full((ROWS, *shape), value, np.float32)}


def _thirds() -> np.ndarray:
    """The third of the order, 0 to 2, of each predicted token of `_batch`."""
    # Of 5 and of 6 numbers, the thirds are 1-2, 3-4, 5 and 1-2, 3-4, 5-6.
    rows = np.arange(ROWS)
    first = np.where(rows[:, None] % 2, [1, 0], [0, 2])
    return np.concatenate([first, rows[:, None] % 6 // 2], 1)


def test_the_thirds_of_an_order():
    weights = OBJECTIVE.weights(_batch(0))
    for number, name in enumerate(_THIRDS):
        np.testing.assert_array_equal(weights[name][:, :3], _thirds() == number)
        assert not weights[name][:, 3].any()


@pytest.mark.slow
def test_losses_by_place_in_the_order(params):
    batch = {**_batch(0), **_memory()}
    found, _ = _sums(params, batch)
    logits = _logits(params, batch)
    losses = np.asarray(jax.jit(cross_entropy)(logits, batch["masked_lm_ids"]))[:, :3]
    assert found["mlm_loss"] == pytest.approx(losses.mean(), rel=rounding(1))
    for number, name in enumerate(_THIRDS):
        assert found[name] == pytest.approx(losses[_thirds() == number].mean(), rel=rounding(1))


@pytest.mark.slow
def test_a_row_reads_what_the_batch_before_has_left(params):
    """The memory of a row is what its layers have read, and only that row depends on it."""
    _, first = _sums(params, {**_batch(0), **_memory()})
    assert not np.any(first["memory"][:, :, : MEMORY - REUSE])  # what was there before
    inputs = _batch(0)
    read = partial(
        OBJECTIVE.module(SPEC).apply,
        deterministic=True,
        method=lambda module, x, **how: module.encoder.two_streams(x, **how)[1],
    )
    states = jax.device_get(jax.jit(read)({"params": params}, {**inputs, **_memory()}))
    for layer in range(2):
        assert_close(first["memory"][:, layer, -REUSE:], states[layer][:, :REUSE])
    _, second = _sums(params, {**_batch(1), **first})
    kept = MEMORY - REUSE
    np.testing.assert_array_equal(second["memory"][:, :, :kept], first["memory"][:, :, -kept:])
    other = np.array(first["memory"])
    other[2] += 1
    both = [_logits(params, {**_batch(1), "memory": each}) for each in (first["memory"], other)]
    differs = np.abs(np.subtract(*jax.device_get(both))).max((1, 2)) > 1e-4
    assert differs.tolist() == [row == 2 for row in range(ROWS)]


def test_no_gradient_goes_into_the_memory(params):
    def loss(memory):
        return OBJECTIVE.model(SPEC)(params, {**_batch(0), "memory": memory})["memory"].sum()

    assert not np.any(jax.jit(jax.grad(loss))(_memory(1.0)["memory"]))


def test_without_memory_nothing_is_carried(params):
    objective = dataclasses.replace(OBJECTIVE, memory=0)
    assert objective.carried(objective.model(SPEC)) == {}
    found, carry = _sums(params, _batch(0), objective)
    assert carry == {} and np.isfinite(found["mlm_loss"])


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "layout, mesh, accumulate, changes",
    others_slow(
        [
            ("tensor_fsdp", {"model": 2}, 2, {"vocab_multiple": 8}),
            ("zero1", {}, 1, {"scan_layers": True}),
            ("sequence", {"model": 2}, 1, {"remat": "layer"}),
        ]
    ),
)
def test_many_devices_train_what_one_trains(layout, mesh, accumulate, changes):
    """With dropout, in microbatches of rows of their own memory, over three batches."""
    dropped = {"hidden_dropout_prob": 0.1 * (accumulate == 1)}
    spec = dataclasses.replace(SPEC, **changes | dropped)
    train = partial(train_three_batches, OBJECTIVE, spec, make_batch=_batch)
    one, expected = train(data_parallel(jax.devices()[:1]), accumulate=1)
    many, others = train(make_placement(MeshSpec(**mesh), layout), accumulate=accumulate)
    for a, b in zip(one, many, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert expected[1]["memory"].any()
    assert_close(others, expected, 1000, size=1)


@pytest.mark.parametrize(
    "spec, message",
    [
        (BertSpec(), "objective='permutation': bert has no head for it"),
        (dataclasses.replace(SPEC, causal=True), "model.causal=True: the order is given"),
    ],
)
def test_encoders_that_it_cannot_train(spec, message):
    with pytest.raises(ValueError, match=message):
        OBJECTIVE.check(spec)


def test_operations_of_both_streams():
    """By hand, for a row of 12 with 3 predicted tokens: each product counts 6 for each weight."""
    length, predicted, width = 12, 3, 16
    keys = length + MEMORY
    layer = 4 * width**2 + 2 * width * 24 + 3 * width * keys
    query = layer - 2 * width**2
    wanted = 2 * layer + predicted / length * (2 * query + width * 40)
    assert OBJECTIVE.flops_per_token(SPEC, length, predicted) == pytest.approx(6 * wanted)
