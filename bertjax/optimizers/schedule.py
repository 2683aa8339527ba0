"""Schedules: maps the count of updates, from 0, to the learning rate."""

import jax
import jax.numpy as jnp
import optax

from bertjax.optimizers.spec import WSD, OptimizerSpec


def make_schedule(spec: OptimizerSpec, total_steps: int) -> optax.Schedule:
    """The schedule of a run of `total_steps` updates.

    Raises:
      ValueError: the warm-up is as long as the run or longer, or leaves too few updates to decay.
    """
    peak, warmup_steps, decay_steps = spec.learning_rate, spec.warmup_steps, spec.decay_steps
    if warmup_steps >= total_steps:
        raise ValueError(
            f"optimizer warmup_steps={warmup_steps}: must be less than the {total_steps} "
            "steps of the run"
        )
    if warmup_steps + decay_steps > total_steps:
        raise ValueError(
            f"optimizer decay_steps={decay_steps}: must be at most {total_steps - warmup_steps}, "
            f"the steps of the run after warmup_steps={warmup_steps}"
        )
    if spec.schedule == WSD:
        return lambda count: wsd_rate(count, peak, warmup_steps, total_steps, decay_steps)
    return lambda count: linear_rate(count, peak, warmup_steps, total_steps)


def linear_rate(count, peak, warmup_steps, total_steps) -> jax.Array:
    """Linear up, then linear down to 0 (section A.2)."""
    up = (count + 1.0) / jnp.maximum(warmup_steps, 1)
    down = (total_steps - count) / (total_steps - warmup_steps)
    return peak * jnp.minimum(up, jnp.minimum(down, 1.0))


def wsd_rate(count, peak, warmup_steps, total_steps, decay_steps) -> jax.Array:
    """Linear up, constant, then down to 0 by 1 - sqrt (arXiv 2405.18392, section 3)."""
    up = jnp.minimum((count + 1.0) / jnp.maximum(warmup_steps, 1), 1.0)
    decayed = (count - (total_steps - decay_steps)) / jnp.maximum(decay_steps, 1)
    return peak * up * (1.0 - jnp.sqrt(jnp.clip(decayed, 0.0, 1.0)))
