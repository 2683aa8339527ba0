"""AdamW and LAMB as BERT uses them: schedule, decay mask, clipping.

Where this differs, knowingly, from google-research/bert `optimization.py`: see docs/differences.md.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """Hyperparameters; the defaults are section A.2's.

    Attributes:
      name: "adamw" or "lamb" (arXiv 1904.00962, which normalizes each tensor's update).
      learning_rate: the peak.
      warmup_steps: updates of linear warm-up; then linear decay to 0 at the run's end.
      weight_decay: of matrices and embeddings; never of LayerNorm or biases.
      clip_norm: the gradient's global norm is cut to this.
      bias_correction: False for the reference's form of Adam.
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    warmup_steps: int = 10_000
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    bias_correction: bool = True

    def __post_init__(self):
        if self.name not in ("adamw", "lamb"):
            raise ValueError(f"optimizer name={self.name!r}: must be 'adamw' or 'lamb'")
        for field in ("learning_rate", "epsilon", "clip_norm"):
            if not getattr(self, field) > 0:
                raise ValueError(f"optimizer {field}={getattr(self, field)}: must be positive")
        for field in ("beta1", "beta2", "weight_decay"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"optimizer {field}={getattr(self, field)}: must be in [0, 1)")
        if self.warmup_steps < 0:
            raise ValueError(f"optimizer warmup_steps={self.warmup_steps}: must not be negative")


def make_schedule(spec: OptimizerSpec, total_steps: int) -> optax.Schedule:
    """Update count (from 0) -> learning rate: linear up, then linear down to 0.

    Raises:
      ValueError: a warm-up as long as the run, or longer.
    """
    if spec.warmup_steps >= total_steps:
        raise ValueError(
            f"optimizer warmup_steps={spec.warmup_steps}: must be less than the {total_steps} "
            "steps of the run"
        )
    return lambda count: _rate(count, spec.learning_rate, spec.warmup_steps, total_steps)


def _rate(count, peak, warmup_steps, total_steps):
    up = (count + 1.0) / jnp.maximum(warmup_steps, 1)
    down = (total_steps - count) / (total_steps - warmup_steps)
    return peak * jnp.minimum(up, jnp.minimum(down, 1.0))


def decays(params) -> object:
    """A tree of bool like `params`: True where weight decay applies."""

    def is_decayed(path, _):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        return names[-1] not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def _scale_by_adam_without_bias_correction(b1: float, b2: float, eps: float):
    """m / (sqrt(v) + eps) with the raw moments, as in the reference's AdamWeightDecayOptimizer."""

    def update(updates, state, params=None):
        del params
        mu = optax.tree.update_moment(updates, state.mu, b1, 1)
        nu = optax.tree.update_moment(updates, state.nu, b2, 2)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, state._replace(count=optax.safe_increment(state.count), mu=mu, nu=nu)

    return optax.GradientTransformation(optax.scale_by_adam(b1, b2, eps).init, update)


def make_optimizer(
    spec: OptimizerSpec, total_steps: int, frozen: Sequence[str] = ()
) -> optax.GradientTransformation:
    """Clipping, moments, decay, (trust ratio,) learning rate: in the reference's order.

    Args:
      frozen: parts of the parameters that no update changes.
    """
    transforms = [
        *_directions(spec),
        optax.scale_by_learning_rate(make_schedule(spec, total_steps)),
    ]
    if frozen:

        def is_frozen(params):
            return {
                part: jax.tree.map(lambda _, part=part: part in frozen, tree)
                for part, tree in params.items()
            }

        transforms.append(optax.masked(optax.set_to_zero(), is_frozen))
    return optax.chain(*transforms)


def _directions(spec: OptimizerSpec) -> list[optax.GradientTransformation]:
    """All but the learning rate."""
    moments = (
        optax.scale_by_adam if spec.bias_correction else _scale_by_adam_without_bias_correction
    )
    transforms = [
        optax.clip_by_global_norm(spec.clip_norm),
        moments(spec.beta1, spec.beta2, spec.epsilon),
        optax.add_decayed_weights(spec.weight_decay, mask=decays),
    ]
    if spec.name == "lamb":
        # As in Google's LAMB, biases and LayerNorm take part in neither decay nor adaptation.
        transforms.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    return transforms


class ScheduleState(NamedTuple):
    """Updates so far (int32), and the numbers of the schedule (float32): scalars."""

    count: jax.Array
    learning_rate: jax.Array
    warmup_steps: jax.Array
    total_steps: jax.Array


def make_adjustable_optimizer(spec: OptimizerSpec) -> optax.GradientTransformation:
    """Makes the same optimizer with the schedule in its state: all trials share a compiled step.

    `with_schedule` sets it; before that the rate is 0.
    """

    def init(_):
        return ScheduleState(jnp.int32(0), *(jnp.float32(x) for x in (0, 0, 1)))

    def update(updates, state, params=None):
        del params
        rate = _rate(*state)
        count = optax.safe_increment(state.count)
        return jax.tree.map(lambda u: -rate * u, updates), state._replace(count=count)

    return optax.chain(*_directions(spec), optax.GradientTransformation(init, update))


def with_schedule(opt_state: Any, spec: OptimizerSpec, total_steps: int) -> Any:
    """The state of `make_adjustable_optimizer`'s optimizer, with `make_schedule`'s schedule."""
    *directions, schedule = opt_state
    numbers = {
        name: jax.device_put(jnp.float32(value), schedule.count.sharding)
        for name, value in (
            ("learning_rate", spec.learning_rate),
            ("warmup_steps", spec.warmup_steps),
            ("total_steps", total_steps),
        )
    }
    return (*directions, schedule._replace(**numbers))
