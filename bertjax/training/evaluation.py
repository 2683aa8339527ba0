"""Losses and accuracies on held-out batches, as means over all that is counted."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax

from bertjax.training.feed import Feed
from bertjax.training.health import in_language
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.objective import HostSums, Objective, Rngs, Sums
from bertjax.training.sharding.placement import HostBatch, Placement
from bertjax.training.step import add_sums, means, weighted


class HeldOut(NamedTuple):
    """The batches of an evaluation.

    Attributes:
      batch: `batch(number, rows)` makes rows of one, always the same.
      languages: language -> the batches in it, if the text has several.
    """

    batch: Callable[[int, slice], HostBatch]
    batch_size: int
    languages: Mapping[str, "HeldOut"] = {}


class Evaluator:
    """A compiled objective without dropout; other random numbers are the same each time."""

    def __init__(self, objective: Objective, model: Model, placement: Placement):
        self._objective, self._placement = objective, placement
        self._carried = objective.carried(model)

        def sums(params: Params, batch: Arrays, number: jax.Array) -> tuple[Sums, Arrays]:
            rngs = Rngs(jax.random.key(number), deterministic=True)
            return objective.sums(model, params, batch, rngs)

        shardings = placement.replicated, placement.batch
        self._sums = jax.jit(sums, out_shardings=shardings)

    def evaluate(self, params: Params, held_out: HeldOut, batches: int) -> dict[str, float]:
        """Means over the first `batches` batches; "loss" is what training minimizes.

        For each accuracy NAME, "NAME_stderr" is its standard error, as if the answers were
        independent (those in one sequence are not quite). With several languages,
        `in_language(language, NAME)` is each of the objective's columns in one of them.
        """

        def make(number: int) -> dict[str, jax.Array]:
            return self._placement.put(partial(held_out.batch, number), held_out.batch_size)

        total: HostSums = {}
        carry = self._placement.zeros(self._carried, held_out.batch_size)
        with self._placement.active():
            for number, batch in Feed(make, range(batches)):
                sums, carry = self._sums(params, {**batch, **carry}, number)
                total = add_sums(total, jax.device_get(sums))
        metrics = means(total)
        weights = self._objective.loss_weights
        loss = weighted({name: metrics[name] for name in weights}, weights)
        errors = {
            f"{name}_stderr": math.sqrt(metrics[name] * (1 - metrics[name]) / count)
            for name, (_, count) in total.items()
            if name.endswith("_accuracy") and count
        }
        by_language = {
            in_language(language, name): value
            for language, language_batches in held_out.languages.items()
            for name, value in self.evaluate(params, language_batches, batches).items()
            if name in self._objective.columns
        }
        derived = self._objective.derived(metrics)
        return {"loss": loss, **metrics, **errors, **derived, **by_language}
