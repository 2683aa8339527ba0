"""The update as it is compiled, for batches in one part and for batches in several.

A batch in one part is one program. The parts of a batch may each have a shape of their own, as
texts of like length have: then there is a program for each shape, which computes or adds to the
gradient, and one that updates.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertjax.sharding.placement import Placement
from bertjax.training.moves import moves_between
from bertjax.training.state import TrainState
from bertjax.training.step import (
    Batch,
    LossFunction,
    Sums,
    dropout_key,
    gradient,
    train_step,
    updated,
    whole_counts,
)

# libtpu would gather small shares, as 64 chips have them, by an all-reduce of whole weights, which
# moves twice the bytes and does not run beside products.
_TPU_OPTIONS = {"xla_tpu_prefer_async_allgather_to_allreduce": True}


class CompiledStep:
    """`bertjax.training.step.train_step` on devices; each program is compiled when it is needed.

    Args:
      loss, optimizer: see `train_step`.
      placement: where everything lies.
      weights: of `weights_in_use`.
      abstract: shapes and shardings of the state.
      accumulate: equal parts that a batch in one program is taken in.
    """

    def __init__(
        self,
        loss: LossFunction,
        optimizer: optax.GradientTransformation,
        placement: Placement,
        weights: Any,
        abstract: TrainState,
        accumulate: int,
    ):
        shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        everywhere = placement.replicated
        moves = moves_between(shardings.params, weights)
        on_tpu = placement.mesh.devices.flat[0].platform == "tpu"
        compiled = partial(jax.jit, compiler_options=_TPU_OPTIONS if on_tpu else None)
        whole = partial(
            train_step,
            loss=loss,
            optimizer=optimizer,
            accumulate=accumulate,
            moves=moves,
        )
        self._whole = compiled(
            lambda state, batch, seed: whole(state, batch, seed=seed),
            in_shardings=(shardings, placement.batch, everywhere),
            out_shardings=(shardings, everywhere),
            donate_argnums=0,
        )

        def share(params, part, counts, step, number, seed):
            key = jax.random.fold_in(dropout_key(seed, step), number)
            return gradient(moves.gather(params), part, counts, key, loss=loss, moves=moves)

        def add(total, *of_part):
            return jax.tree.map(jnp.add, total, share(*of_part))

        def update(state, total, counts):
            return updated(
                state,
                *total,
                counts,
                weights=loss.weights,
                optimizer=optimizer,
            )

        total = (shardings.params, everywhere)
        of_part = (shardings.params, placement.batch, *(everywhere,) * 4)
        self._counts = compiled(loss.counts, out_shardings=everywhere)
        # The first part has a program without a sum: zeros to add to would cost as much as a part.
        self._first = compiled(share, in_shardings=of_part, out_shardings=total)
        self._add = compiled(
            add,
            in_shardings=(total, *of_part),
            out_shardings=total,
            donate_argnums=0,
        )
        self._update = compiled(
            update,
            in_shardings=(shardings, total, everywhere),
            out_shardings=(shardings, everywhere),
            donate_argnums=0,
        )

    def __call__(
        self, state: TrainState, parts: Sequence[Batch], seed: int
    ) -> tuple[TrainState, Sums]:
        """One update with a batch, on the devices in its parts; `state` is donated."""
        if len(parts) == 1:
            return self._whole(state, parts[0], seed)
        each = [self._counts(part) for part in parts]
        counts = whole_counts({name: sum(part[name] for part in each) for name in each[0]})
        first, *others = parts
        total = self._first(state.params, first, counts, state.step, 0, seed)
        for number, part in enumerate(others, 1):
            total = self._add(total, state.params, part, counts, state.step, number, seed)
        return self._update(state, total, counts)

    def lower(self, state: TrainState, batch: Any) -> jax.stages.Lowered:
        """The program for a batch in one part, for devices that are only described.

        Args:
          state, batch: shapes and dtypes.
        """
        return self._whole.lower(state, batch, jax.ShapeDtypeStruct((), "int32"))
