"""A few updates with one batch, on given devices."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bertjax.training.experiment import Experiment
from bertjax.training.loop import Trainer
from bertjax.training.step import means


def some_updates(
    experiment: Experiment, batch: Mapping[str, np.ndarray]
) -> tuple[list[dict[str, float]], Any]:
    """The metrics of three updates at rate 1, and the parameters after them."""
    placement, trainer = experiment.placement, Trainer(experiment)
    state, found = experiment.initial_state(0), []
    rows = len(batch["input_ids"])
    with placement.active():
        for _ in range(3):
            arrays = placement.put(lambda held: {n: x[held] for n, x in batch.items()}, rows)
            state, sums = trainer.step(1)(state, [arrays], 1.0, 0)
            found.append(means(jax.device_get(sums)))
    return found, jax.device_get(state.params)
