"""The update as it is compiled, for batches of one microbatch and of several.

A batch of one is one program, which may split it. Several may have different shapes, because each
has texts of similar length: a program for each shape computes the gradient or adds to it, and one
updates.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bertjax.training.experiment import Experiment
from bertjax.training.memory import Needs, needs_of
from bertjax.training.model import Arrays, Params
from bertjax.training.objective import Sums
from bertjax.training.reshard import reshard_between
from bertjax.training.sharding.placement import Placement
from bertjax.training.state import TrainState
from bertjax.training.step import gradient, step_key, train_step, updated, whole_counts

# libtpu would gather small shares, as 64 chips have them, by an all-reduce of whole weights, which
# moves twice the bytes and does not run during products.
# A GPU would make one product of those that read the same array, as of queries, keys and values,
# and then cut the result, and put together their gradients.
OPTIONS: Mapping[str, dict[str, Any]] = {
    "tpu": {"xla_tpu_prefer_async_allgather_to_allreduce": True},
    "gpu": {"xla_gpu_dot_merger_threshold_mb": 0},
}


def _small_share(placement: Placement) -> int:
    """The bytes under which libtpu gathers by an all-reduce after all: for 64 chips of v6e."""
    device = placement.mesh.devices.flat[0].device_kind
    return 384 * 2**10 if device.startswith("TPU v6") and placement.ways >= 64 else 0


class CompiledStep:
    """`bertjax.training.step.train_step` on devices; each program is compiled when it is needed."""

    def __init__(self, experiment: Experiment, accumulate: int):
        placement, objective = experiment.placement, experiment.objective
        model = experiment.model
        optimizer = experiment.optimizer
        shardings = jax.tree.map(lambda leaf: leaf.sharding, experiment.state)
        frozen = jax.tree.map(lambda leaf: leaf.sharding, experiment.abstract_frozen)
        everywhere = placement.replicated
        moves = reshard_between(shardings.params, experiment.used, _small_share(placement))
        options = OPTIONS.get(placement.mesh.devices.flat[0].platform)
        compiled = partial(jax.jit, compiler_options=options)
        self._experiment = experiment
        self._whole = compiled(
            partial(
                train_step,
                model=model,
                objective=objective,
                optimizer=optimizer,
                accumulate=accumulate,
                moves=moves,
            ),
            in_shardings=(shardings, frozen, placement.batch, everywhere, everywhere),
            out_shardings=(shardings, everywhere),
            donate_argnums=0,
        )

        def gradient_of_microbatch(
            params: Params,
            frozen: Params,
            microbatch: Arrays,
            counts: Mapping[str, jax.Array],
            step: jax.Array,
            number: jax.Array,
            seed: jax.Array,
        ) -> tuple[Params, Sums]:
            key = jax.random.fold_in(step_key(seed, step), number)
            arguments = moves.gather(params), frozen, microbatch, counts, key
            return gradient(*arguments, model=model, objective=objective, moves=moves)[:2]

        def add(total: tuple[Params, Sums], *of_microbatch: Any) -> tuple[Params, Sums]:
            return jax.tree.map(jnp.add, total, gradient_of_microbatch(*of_microbatch))

        def update(
            state: TrainState,
            total: tuple[Params, Sums],
            counts: Mapping[str, jax.Array],
            learning_rate: jax.Array,
        ) -> tuple[TrainState, Sums]:
            weights = objective.loss_weights
            return updated(
                state, *total, counts, learning_rate, weights=weights, optimizer=optimizer
            )

        total = (shardings.params, everywhere)
        of_microbatch = (shardings.params, frozen, placement.batch, *(everywhere,) * 4)
        self._counts = compiled(objective.counts, out_shardings=everywhere)
        # The first program has no sum: making zeros and adding to them costs as much as one.
        self._first = compiled(
            gradient_of_microbatch, in_shardings=of_microbatch, out_shardings=total
        )
        self._add = compiled(
            add,
            in_shardings=(total, *of_microbatch),
            out_shardings=total,
            donate_argnums=0,
        )
        self._update = compiled(
            update,
            in_shardings=(shardings, total, everywhere, everywhere),
            out_shardings=(shardings, everywhere),
            donate_argnums=0,
        )

    def __call__(
        self, state: TrainState, microbatches: Sequence[Arrays], learning_rate: float, seed: int
    ) -> tuple[TrainState, Sums]:
        """One update with a batch, which is on the devices; `state` is donated."""
        frozen = self._experiment.frozen
        if len(microbatches) == 1:
            return self._whole(state, frozen, microbatches[0], learning_rate, seed)
        each = [self._counts(microbatch) for microbatch in microbatches]
        counts = whole_counts({name: sum(one[name] for one in each) for name in each[0]})
        first, *rest = microbatches
        total = self._first(state.params, frozen, first, counts, state.step, 0, seed)
        for number, microbatch in enumerate(rest, 1):
            total = self._add(
                total, state.params, frozen, microbatch, counts, state.step, number, seed
            )
        return self._update(state, total, counts, learning_rate)

    def needs(
        self, state: TrainState, microbatches: Sequence[Arrays], learning_rate: float, seed: int
    ) -> Needs:
        """The needs of an update with one microbatch, which is compiled for later, too."""
        (microbatch,) = microbatches
        lowered = self._whole.lower(state, self._experiment.frozen, microbatch, learning_rate, seed)
        return needs_of(lowered.compile())

    def lower(
        self, state: TrainState, batch: Mapping[str, jax.ShapeDtypeStruct]
    ) -> jax.stages.Lowered:
        """The program for one microbatch, from shapes and dtypes, for described devices."""
        rate, seed = (jax.ShapeDtypeStruct((), dtype) for dtype in ("float32", "int32"))
        return self._whole.lower(state, self._experiment.abstract_frozen, batch, rate, seed)
