"""Schedules: the count of updates, from 0, -> the learning rate; computed on the host."""

from collections.abc import Callable

import numpy as np

from bertjax.base.errors import InputError
from bertjax.training.optimizers.spec import WSD, OptimizerSpec

Schedule = Callable[[int], float]


def make_schedule(spec: OptimizerSpec, total_steps: int) -> Schedule:
    """The schedule of a run; InputError if too few updates are left after the warm-up."""
    peak, decay_steps = spec.learning_rate, spec.decay_steps
    warmup_steps = spec.warmup_of(total_steps)
    if warmup_steps >= total_steps:
        raise InputError(
            f"config.optimizer.warmup_steps={warmup_steps}: must be less than the {total_steps} "
            "steps of the run"
        )
    if warmup_steps + decay_steps > total_steps:
        raise InputError(
            f"config.optimizer.decay_steps={decay_steps}: must be at most "
            f"{total_steps - warmup_steps}, the steps of the run after warmup_steps={warmup_steps}"
        )
    if spec.schedule == WSD:
        return lambda count: wsd_rate(count, peak, warmup_steps, total_steps, decay_steps)
    return lambda count: linear_rate(count, peak, warmup_steps, total_steps)


def linear_rate(count: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Linear up, then linear down to 0 (section A.2)."""
    up = np.float32(count + 1) / np.float32(max(warmup_steps, 1))
    down = np.float32(total_steps - count) / np.float32(total_steps - warmup_steps)
    return float(np.float32(peak) * min(up, down, np.float32(1)))


def wsd_rate(
    count: int, peak: float, warmup_steps: int, total_steps: int, decay_steps: int
) -> float:
    """Linear up, constant, then down to 0 by 1 - sqrt (arXiv 2405.18392, section 3)."""
    up = min(np.float32(count + 1) / np.float32(max(warmup_steps, 1)), np.float32(1))
    decayed = np.float32(count - (total_steps - decay_steps)) / np.float32(max(decay_steps, 1))
    return float(np.float32(peak) * up * (1 - np.sqrt(np.clip(decayed, 0, 1))))
