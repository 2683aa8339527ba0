"""Losses and accuracies on held-out batches, by true counts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from bertjax.sharding.placement import HostBatch, Placement
from bertjax.training.feed import Feed
from bertjax.training.step import LossFunction, Sums, add_sums, means, weighted


class HeldOut(NamedTuple):
    """Batches for evaluation: (number, rows) -> those rows, on the host; the same every time."""

    batch: Callable[[int, slice], HostBatch]
    batch_size: int


class Evaluator:
    """A loss function, compiled for evaluation (without dropout) on one placement.

    What is random besides dropout has a key of its own, which the number of the batch decides: so
    every evaluation draws the same.
    """

    def __init__(self, loss: LossFunction, placement: Placement):
        self._loss, self._placement = loss, placement

        def sums(params, batch, number):
            return loss.sums(params, batch, jax.random.key(number), deterministic=True)

        self._sums = jax.jit(sums, out_shardings=placement.replicated)

    def evaluate(self, params: Any, held_out: HeldOut, batches: int) -> dict[str, float]:
        """Means over the first `batches` batches; "loss" is what training minimizes.

        Beside an accuracy NAME, "NAME_stderr" is its standard error, were each of what it counts
        independent of the others (the hidden tokens of one sequence are not quite).
        """

        def make(number):
            return self._placement.put(partial(held_out.batch, number), held_out.batch_size)

        total: Sums = {}
        with self._placement.active():
            for number, batch in Feed(make, range(batches)):
                total = add_sums(total, jax.device_get(self._sums(params, batch, number)))
        metrics = means(total)
        weights = self._loss.weights
        loss = weighted({name: metrics[name] for name in weights}, weights)
        errors = {
            f"{name}_stderr": math.sqrt(metrics[name] * (1 - metrics[name]) / count)
            for name, (_, count) in total.items()
            if name.endswith("_accuracy") and count
        }
        return {"loss": loss, **metrics, **errors, **self._loss.derived(metrics)}
