"""The optimizers as BERT uses them: their directions, decay, clipping, and a learning rate.

Where this differs, knowingly, from google-research/bert `optimization.py`: see docs/differences.md.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertjax.optimizers.adam import scale_by_adam_without_bias_correction, scale_by_stable_adam
from bertjax.optimizers.muon import of_matrices, scale_matrices_by_muon
from bertjax.optimizers.schedule import linear_rate, make_schedule
from bertjax.optimizers.spec import LAMB, MUON, STABLE_ADAMW, OptimizerSpec

Axes = Callable[[], Any]


def decays(params) -> object:
    """A tree of bool like `params`: True where weight decay applies."""

    def is_decayed(path, _):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        return names[-1] not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def make_optimizer(
    spec: OptimizerSpec,
    total_steps: int,
    frozen: Sequence[str] = (),
    axes: Axes | None = None,
) -> optax.GradientTransformation:
    """Clipping, moments, decay, (trust ratio,) learning rate: in the reference's order.

    Args:
      frozen: parts of the parameters that no update changes; they have no moments.
      axes: gives the tree of the parameters' logical axes, a tuple for each; only Muon asks.
    """

    def trained_axes():
        return axes() | dict.fromkeys(frozen, ())

    optimizer = optax.chain(
        *_directions(spec, trained_axes),
        optax.scale_by_learning_rate(make_schedule(spec, total_steps)),
    )
    if not frozen:
        return optimizer
    return optax.partition(
        {"trained": optimizer, "frozen": optax.set_to_zero()},
        lambda params: {part: "frozen" if part in frozen else "trained" for part in params},
    )


def _directions(spec: OptimizerSpec, axes: Axes | None) -> list[optax.GradientTransformation]:
    """All but the learning rate."""
    numbers = spec.beta1, spec.beta2, spec.epsilon
    decay = optax.add_decayed_weights(spec.weight_decay, mask=decays)
    if spec.name == STABLE_ADAMW:
        return [scale_by_stable_adam(*numbers, decay)]
    adam = optax.scale_by_adam if spec.bias_correction else scale_by_adam_without_bias_correction
    transforms = [
        optax.clip_by_global_norm(spec.clip_norm),
        adam(*numbers),
        decay,
    ]
    if spec.name == LAMB:
        # As in Google's LAMB, biases and LayerNorm take part in neither decay nor adaptation.
        transforms.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    if spec.name == MUON:
        names = axes()
        others = jax.tree.map(lambda matrix: not matrix, of_matrices(names))
        transforms[1:2] = [scale_matrices_by_muon(names), optax.masked(adam(*numbers), others)]
    return transforms


class ScheduleState(NamedTuple):
    """Updates so far (int32), and the numbers of the schedule (float32): scalars."""

    count: jax.Array
    learning_rate: jax.Array
    warmup_steps: jax.Array
    total_steps: jax.Array


def make_adjustable_optimizer(
    spec: OptimizerSpec, axes: Axes | None = None
) -> optax.GradientTransformation:
    """Makes the same optimizer with a linear schedule in its state: all trials share a step.

    `with_schedule` sets it; before that the rate is 0.

    Args:
      axes: see `make_optimizer`.
    """

    def init(_):
        return ScheduleState(jnp.int32(0), *(jnp.float32(x) for x in (0, 0, 1)))

    def update(updates, state, params=None):
        del params
        rate = linear_rate(*state)
        count = optax.safe_increment(state.count)
        return jax.tree.map(lambda u: -rate * u, updates), state._replace(count=count)

    return optax.chain(*_directions(spec, axes), optax.GradientTransformation(init, update))


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
