"""Losses and accuracies on held-out batches, by true counts."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax

from bertjax.sharding.placement import HostBatch, Placement
from bertjax.training.feed import Feed
from bertjax.training.step import Objective, Sums, add_sums, means


class HeldOut(NamedTuple):
    """Batches for evaluation: (number, rows) -> those rows, on the host; the same every time."""

    batch: Callable[[int, slice], HostBatch]
    batch_size: int


class Evaluator:
    """An objective, compiled for evaluation (without dropout) on one placement."""

    def __init__(self, objective: Objective, placement: Placement):
        self._placement = placement
        self._sums = jax.jit(
            lambda params, batch: objective.sums(params, batch, None),
            out_shardings=placement.replicated,
        )

    def evaluate(self, params: Any, held_out: HeldOut, batches: int) -> dict[str, float]:
        """Means over the first `batches` batches; "loss" is the sum of the losses.

        Beside an accuracy NAME, "NAME_stderr" is its standard error, were each of what it counts
        independent of the others (the hidden tokens of one sequence are not quite).
        """

        def make(number):
            return self._placement.put(partial(held_out.batch, number), held_out.batch_size)

        total: Sums = {}
        with self._placement.active():
            for _, batch in Feed(make, range(batches)):
                total = add_sums(total, jax.device_get(self._sums(params, batch)))
        metrics = means(total)
        loss = sum(value for name, value in metrics.items() if name.endswith("_loss"))
        perplexity = math.exp(min(metrics["mlm_loss"], 700.0))  # exp(710) overflows
        errors = {
            f"{name}_stderr": math.sqrt(metrics[name] * (1 - metrics[name]) / count)
            for name, (_, count) in total.items()
            if name.endswith("_accuracy") and count
        }
        return {"loss": loss, **metrics, **errors, "mlm_perplexity": perplexity}


def one_answer(metrics: Mapping[str, float]) -> str:
    """Says so where the next-sentence head gave one answer to all it was asked; else ""."""
    share = metrics.get("nsp_random_answers")
    if share not in (0.0, 1.0):
        return ""
    answer = "B is random" if share else "B follows A"
    return (
        f"the next-sentence head answers {answer!r} always: its accuracy is only the share of such "
        "examples"
    )
