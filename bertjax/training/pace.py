"""How fast updates are here."""

import statistics
import time
from typing import NamedTuple

import jax

from bertjax.training.loop import Phase, Trainer

_UPDATES = 10  # that are timed


class Pace(NamedTuple):
    """The seconds of a phase's first update, compilation included, and the median of the next."""

    first: float
    seconds: float


def pace_of(trainer: Trainer, phase: Phase, rate: float, seed: int) -> Pace:
    """Makes some updates of new parameters with the batches of a phase, one at a time."""
    state, times = trainer.experiment.initial_state(seed), []
    for number in range(1 + _UPDATES):
        microbatches, begin = trainer.put(phase, number), time.perf_counter()
        state, sums = trainer.update(state, phase, microbatches, rate, seed)
        jax.block_until_ready(sums)
        times.append(time.perf_counter() - begin)
    return Pace(times[0], statistics.median(times[1:]))
