"""Losses as sums and counts, against numpy by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax import batch as batches
from bertjax.losses import loss_counts, pretraining_sums, uses_next_sentence


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture
def case():
    """Logits and a batch for both tasks; the third row has no prediction at all."""
    rng = np.random.default_rng(3)
    logits = {
        "masked_lm": rng.normal(0, 3, (3, 5, 11)).astype(np.float32),
        "next_sentence": rng.normal(0, 2, (3, 2)).astype(np.float32),
    }
    weights = np.array([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    ids = np.where(weights > 0, rng.integers(0, 11, (3, 5)), 0)
    ids[0, 1] = logits["masked_lm"][0, 1].argmax()  # one is right, at least
    batch = {
        "masked_lm_ids": ids.astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([1, 0, 1], np.int32),
    }
    return logits, batch


def _by_hand(logits, labels, weights) -> tuple[float, float, float]:
    """Sum of losses, of right answers, and of weights, one element at a time."""
    loss = correct = count = 0.0
    log_probabilities = _log_softmax(logits)
    for index in np.ndindex(labels.shape):
        loss -= weights[index] * log_probabilities[index][labels[index]]
        correct += weights[index] * (logits[index].argmax() == labels[index])
        count += weights[index]
    return loss, correct, count


def _assert_sums(actual, expected):
    assert actual.keys() == expected.keys()
    for name, pair in expected.items():
        np.testing.assert_allclose(actual[name], pair, rtol=1e-5, err_msg=name)
        assert all(x.dtype == jnp.float32 and x.shape == () for x in actual[name])


def test_both_tasks(case):
    logits, batch = case
    loss, correct, count = _by_hand(
        logits["masked_lm"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    nsp_loss, nsp_correct, _ = _by_hand(
        logits["next_sentence"], batch["next_sentence_labels"], np.ones(3)
    )
    assert (count, correct > 0) == (5, True)
    expected = {
        "mlm_loss": (loss, 5),
        "mlm_accuracy": (correct, 5),
        "nsp_loss": (nsp_loss, 3),
        "nsp_accuracy": (nsp_correct, 3),
    }
    _assert_sums(jax.jit(pretraining_sums)(logits, batch), expected)
    counts = loss_counts(batch)
    assert {name: float(count) for name, count in counts.items()} == {"mlm_loss": 5, "nsp_loss": 3}


def test_masked_lm_alone_has_no_next_sentence(case):
    logits, batch = case
    del batch["next_sentence_labels"], logits["next_sentence"]
    assert pretraining_sums(logits, batch).keys() == {"mlm_loss", "mlm_accuracy"}
    assert loss_counts(batch).keys() == {"mlm_loss"}


def test_left_to_right():
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (4, 7, 13)).astype(np.float32)
    targets = rng.integers(0, 13, (4, 7)).astype(np.int32)
    weights = (np.arange(7) < np.array([[6], [1], [0], [7]])).astype(np.float32)
    batch = {"target_ids": targets, "target_weights": weights}
    loss, correct, count = _by_hand(logits, targets, weights)
    sums = pretraining_sums({"masked_lm": logits}, batch)
    _assert_sums(sums, {"mlm_loss": (loss, 14), "mlm_accuracy": (correct, 14)})
    assert count == 14
    assert loss_counts(batch) == {"mlm_loss": 14}


def test_weights_of_zero_give_zero_and_carry_no_gradient(case):
    logits, batch = case
    batch["masked_lm_weights"] = np.zeros((3, 5), np.float32)
    sums = pretraining_sums(logits, batch)
    assert tuple(map(float, sums["mlm_loss"])) == (0, 0)
    assert tuple(map(float, sums["mlm_accuracy"])) == (0, 0)
    gradient = jax.grad(
        lambda x: pretraining_sums({**logits, "masked_lm": x}, batch)["mlm_loss"][0]
    )(logits["masked_lm"])
    assert (gradient == 0).all()


def test_unused_places_do_not_count(case):
    """Whatever the label where the weight is 0."""
    logits, batch = case
    other = np.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], 7)
    one = pretraining_sums(logits, batch)
    two = pretraining_sums(logits, batch | {"masked_lm_ids": other})
    assert jax.tree.map(float, one) == jax.tree.map(float, two)


def test_sums_of_parts_add_up(case):
    logits, batch = case
    whole = pretraining_sums(logits, batch)
    parts = [
        pretraining_sums(
            {name: x[rows] for name, x in logits.items()},
            {name: x[rows] for name, x in batch.items()},
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    for name, pair in whole.items():
        total = [sum(float(part[name][i]) for part in parts) for i in (0, 1)]
        np.testing.assert_allclose(pair, total, rtol=1e-6)


def test_the_gradient_is_softmax_less_one_hot(case):
    logits, batch = case
    gradient = jax.grad(
        lambda x: pretraining_sums({**logits, "masked_lm": x}, batch)["mlm_loss"][0]
    )(logits["masked_lm"])
    expected = np.exp(_log_softmax(logits["masked_lm"])) - np.eye(11)[batch["masked_lm_ids"]]
    expected *= batch["masked_lm_weights"][..., None]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_large_logits_stay_finite():
    logits = np.array([[[1e4, -1e4, np.finfo(np.float32).min]]], np.float32)
    batch = {"target_ids": np.array([[1]]), "target_weights": np.ones((1, 1), np.float32)}
    assert float(pretraining_sums({"masked_lm": logits}, batch)["mlm_loss"][0]) == 2e4


@pytest.mark.parametrize(
    "objective, expected",
    [
        (batches.MASKED_LM_NEXT_SENTENCE, True),
        (batches.MASKED_LM, False),
        (batches.LEFT_TO_RIGHT, False),
    ],
)
def test_uses_next_sentence(objective, expected):
    assert uses_next_sentence(objective) is expected
