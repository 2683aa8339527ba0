"""Updates of an objective that hands arrays from batch to batch."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from bertjax.objectives.objective import PretrainingObjective
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Trainer
from bertjax.training.sharding.placement import Placement
from bertjax.training.step import means


def train_three_batches(
    objective: PretrainingObjective,
    spec: Any,
    placement: Placement,
    make_batch: Callable[[int], Mapping[str, np.ndarray]],
    *,
    accumulate: int,
) -> tuple[list[dict[str, float]], tuple[Any, Any]]:
    """The metrics of three updates by SGD from random parameters; the parameters and the carry."""
    rows = len(make_batch(0)["input_mask"])
    optimizer = optax.with_extra_args_support(optax.sgd(1e-2))
    experiment = Experiment(objective.model(spec), objective, optimizer, placement, rows=rows)
    state, found = experiment.initial_state(0), []
    step = Trainer(experiment).step(accumulate)
    with placement.active():
        for number in range(3):
            batch = make_batch(number)
            put = partial(lambda batch, held: {n: x[held] for n, x in batch.items()}, batch)
            state, sums = step(state, [placement.put(put, rows)], 1.0, 0)
            found.append(means(jax.device_get(sums)))
    return found, jax.device_get((state.params, state.carry))
