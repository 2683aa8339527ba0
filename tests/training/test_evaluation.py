"""Means over held-out text, weighted by true counts."""

import jax
import numpy as np
import pytest

from bertjax.training.evaluation import Evaluator, HeldOut
from tests.helpers.closeness import assert_close
from tests.training import toy

HELD_OUT = HeldOut(lambda number, rows: toy.batch(50 + number, rows), toy.ROWS)


def _evaluator(where, objective=toy.OBJECTIVE):
    return Evaluator(objective, toy.MODEL, where)


def _by_hand(params, numbers):
    loss = correct = count = 0.0
    for number in numbers:
        batch = toy.batch(50 + number, slice(None))
        error = (batch["x"] @ np.asarray(params["w"]) + float(params["b"]) - batch["y"]) ** 2
        loss += (error * batch["weight"]).sum()
        correct += ((error < 1) * batch["weight"]).sum()
        count += batch["weight"].sum()
    return loss / count, correct / count, count


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("batches", [1, 3])
def test_means_are_over_all_batches_and_without_dropout(devices, batches):
    where = toy.placement(devices)
    params = toy.initial_state(where).params
    metrics = _evaluator(where).evaluate(params, HELD_OUT, batches)
    loss, accuracy, count = _by_hand(jax.device_get(params), range(batches))
    assert metrics.pop("mlm_perplexity") == pytest.approx(np.exp(metrics["mlm_loss"]))
    expected = {
        "loss": loss,
        "mlm_loss": loss,
        "mlm_accuracy": accuracy,
        "mlm_accuracy_stderr": (accuracy * (1 - accuracy) / count) ** 0.5,
    }
    assert_close(metrics, expected)


def test_a_huge_loss_has_a_finite_perplexity():
    where = toy.placement(1)
    params = jax.tree.map(lambda leaf: leaf * 1e3, toy.initial_state(where).params)
    metrics = _evaluator(where).evaluate(params, HELD_OUT, 1)
    assert metrics["mlm_loss"] > 1000
    assert metrics["mlm_perplexity"] == pytest.approx(np.exp(700.0))


def test_each_loss_has_its_weight():
    where = toy.placement(1)
    params = toy.initial_state(where).params
    half = toy.Regression(loss_weight=0.5)
    metrics = _evaluator(where, half).evaluate(params, HELD_OUT, 2)
    expected, _, _ = _by_hand(jax.device_get(params), range(2))
    assert_close([metrics["mlm_loss"], metrics["loss"]], [expected, expected / 2])


def test_what_is_random_is_the_same_at_every_evaluation():
    """The number of a batch decides it, and no two batches share it."""

    class Chance(toy.Regression):
        def sums(self, model, params, batch, rngs):
            assert rngs.deterministic and rngs.dropout() is None
            return {"mlm_loss": (jax.random.uniform(rngs.draw("chance")), 1.0)}, {}

    where = toy.placement(1)
    evaluator = _evaluator(where, Chance())
    one, again, two = (
        evaluator.evaluate(toy.initial_state(where).params, HELD_OUT, batches)["loss"]
        for batches in (1, 1, 2)
    )
    assert one == again != two
