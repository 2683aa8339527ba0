"""The optimizers as BERT uses them: their directions, decay, clipping, and a learning rate.

The known differences from google-research/bert `optimization.py` are in docs/dev/differences.md.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertjax.training.optimizers.adam import (
    scale_by_adam_without_bias_correction,
    scale_by_stable_adam,
)
from bertjax.training.optimizers.muon import of_matrices, scale_matrices_by_muon
from bertjax.training.optimizers.spec import LAMB, MUON, STABLE_ADAMW, OptimizerSpec

Axes = Callable[[], Any]


def decays(params: optax.Params) -> object:
    """A tree of bool like `params`: True where weight decay applies.

    All but biases and the scales of norms decay. What XLNet adds to queries ("content_bias", ...)
    decays, too, as in `AdamWeightDecayOptimizer` of zihangdai/xlnet.
    """

    def is_decayed(path: jax.tree_util.KeyPath, _: Any) -> bool:
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        return not names[-1].startswith(("bias", "scale"))

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def make_optimizer(
    spec: OptimizerSpec, axes: Axes | None = None, dtype: str = "float32"
) -> optax.GradientTransformationExtraArgs:
    """Clipping, moments, decay, (trust ratio,) learning rate: in the reference's order.

    Its updates take `learning_rate`, so that runs with different schedules share a compiled step.
    Muon needs `axes`, which returns the tree of the parameters' logical axes, a tuple for each, and
    `dtype`, that of the model's products and of its own.
    """
    return optax.chain(*_directions(spec, axes, dtype), _scale_by_learning_rate())


def _scale_by_learning_rate() -> optax.GradientTransformationExtraArgs:
    """Like `optax.scale_by_learning_rate` of a schedule, with its state, but the rate is given."""

    def init(params: optax.Params) -> optax.ScaleByScheduleState:
        del params
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates,
        state: optax.ScaleByScheduleState,
        params: optax.Params | None = None,
        *,
        learning_rate: jax.Array | float,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.ScaleByScheduleState]:
        del params, extra
        rate = -learning_rate
        updates = jax.tree.map(lambda u: rate * u, updates)
        return updates, optax.ScaleByScheduleState(optax.safe_increment(state.count))

    return optax.GradientTransformationExtraArgs(init, update)


def _directions(
    spec: OptimizerSpec, axes: Axes | None, dtype: str
) -> list[optax.GradientTransformation]:
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
        # As in Google's LAMB, biases and LayerNorm have neither decay nor adaptation.
        transforms.append(optax.masked(optax.scale_by_trust_ratio(), decays))
    if spec.name == MUON:
        if axes is None:
            raise ValueError(f"{MUON} needs the logical axes of the parameters")
        names = axes()
        not_matrices = jax.tree.map(lambda matrix: not matrix, of_matrices(names))
        muon = scale_matrices_by_muon(names, dtype)
        transforms[1:2] = [muon, optax.masked(adam(*numbers), not_matrices)]
    return transforms
