"""The sums of an objective for outputs that are given, without a model."""

from collections.abc import Mapping

import jax

from bertjax.training.objective import Objective, Rngs, Sums


def sums_of(objective: Objective, outputs: Mapping[str, jax.Array], batch: Mapping) -> Sums:
    """{name: (sum, count)}, as for a model with these outputs."""
    still = Rngs(jax.random.key(0), deterministic=True)
    sums = jax.jit(lambda given, batch: objective.sums(lambda *_: given, {}, batch, still)[0])
    return sums(outputs, batch)
