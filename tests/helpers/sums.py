"""The sums of an objective for known outputs, without a model."""

from collections.abc import Mapping

import jax

from bertjax.training.objective import Objective, Rngs, Sums


def sums_of(objective: Objective, outputs: Mapping[str, jax.Array], batch: Mapping) -> Sums:
    """{name: (sum, count)}, as for a model with these outputs."""
    still = Rngs(jax.random.key(0), deterministic=True)
    sums = jax.jit(lambda outputs, batch: objective.sums(lambda *_: outputs, {}, batch, still)[0])
    return sums(outputs, batch)
