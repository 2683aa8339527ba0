"""Means over held-out text, weighted by true counts."""

import jax
import numpy as np
import pytest
import toy

from bertjax.training.evaluation import Evaluator, HeldOut, one_answer
from bertjax.training.hardware import peak_flops

HELD_OUT = HeldOut(lambda number, rows: toy.batch(50 + number, rows), toy.ROWS)


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
    params = toy.fresh(where).params
    metrics = Evaluator(toy.OBJECTIVE, where).evaluate(params, HELD_OUT, batches)
    loss, accuracy, count = _by_hand(jax.device_get(params), range(batches))
    assert metrics == {
        "loss": pytest.approx(loss, rel=1e-5),
        "mlm_loss": pytest.approx(loss, rel=1e-5),
        "mlm_accuracy": pytest.approx(accuracy, rel=1e-5),
        "mlm_accuracy_stderr": pytest.approx((accuracy * (1 - accuracy) / count) ** 0.5, rel=1e-4),
        "mlm_perplexity": pytest.approx(np.exp(loss), rel=1e-4),
    }


def test_a_huge_loss_has_a_finite_perplexity():
    where = toy.placement(1)
    params = jax.tree.map(lambda leaf: leaf * 1e3, toy.fresh(where).params)
    metrics = Evaluator(toy.OBJECTIVE, where).evaluate(params, HELD_OUT, 1)
    assert metrics["mlm_loss"] > 1000
    assert metrics["mlm_perplexity"] == pytest.approx(np.exp(700.0))


@pytest.mark.parametrize(
    "share, told",
    [
        (0.0, "answers 'B follows A' always"),
        (1.0, "answers 'B is random' always"),
        (1 / 1024, ""),
        (0.5, ""),
    ],
)
def test_a_head_with_one_answer_is_told(share, told):
    found = one_answer({"nsp_accuracy": 0.5, "nsp_random_answers": share})
    assert told in found and bool(found) == bool(told)
    assert one_answer({"mlm_accuracy": 1.0}) == ""


@pytest.mark.parametrize(
    "kind, peak",
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("TPU v5", 459e12),
        ("TPU v4", 275e12),
        ("cpu", None),
    ],
)
def test_peak_flops(kind, peak):
    assert peak_flops(kind) == peak
