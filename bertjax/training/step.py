"""One update, and one evaluation, as pure functions of (state, batch)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertjax.training.state import TrainState

Batch = Mapping[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]


class Objective(NamedTuple):
    """What is minimized: the sum, over the names of `counts`, of sum / count.

    Attributes:
      sums: (params, batch, dropout key or None) -> {name: (sum, count)} of losses and metrics.
      counts: batch -> {loss name: count}: what divides each loss, known beforehand.
    """

    sums: Callable[[Any, Batch, jax.Array | None], Sums]
    counts: Callable[[Batch], dict[str, jax.Array]]


def train_step(
    state: TrainState,
    batch: Batch,
    *,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    seed: jax.Array | int,
    accumulate: int,
    spread: Callable[[Any], Any] = lambda tree: tree,
) -> tuple[TrainState, Sums]:
    """One update.

    Args:
      batch: arrays of B rows.
      seed: of dropout; with the step it decides every mask.
      accumulate: the batch is taken in this many parts, one after the other, to save memory.
        Each part's losses are divided by the whole batch's counts, so that the gradient is
        that of the whole batch however its rows are spread.
      spread: puts a tree like the parameters where the optimizer's state lies.

    Returns:
      The next state and the sums, with "loss" and "grad_norm" (before clipping) among them.
    """
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    counts = {name: jnp.maximum(c, 1.0) for name, c in objective.counts(batch).items()}

    def part_loss(params, part, key):
        sums = objective.sums(params, part, key)
        return sum(sums[name][0] / count for name, count in counts.items()), sums

    def gradient(params, part, key):
        grads, sums = jax.grad(part_loss, has_aux=True)(params, part, key)
        return spread(grads), sums

    if accumulate == 1:
        grads, sums = gradient(state.params, batch, key)
    else:

        def add_part(total, numbered_part):
            number, part = numbered_part
            new = gradient(state.params, part, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, total, new), None

        parts = jax.tree.map(lambda x: _split_rows(x, accumulate), batch)
        shapes = jax.eval_shape(gradient, state.params, jax.tree.map(lambda x: x[0], parts), key)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        (grads, sums), _ = jax.lax.scan(add_part, zeros, (jnp.arange(accumulate), parts))

    with jax.named_scope("optimizer"):
        old = spread(state.params)
        updates, opt_state = optimizer.update(grads, state.opt_state, old)
        params = optax.apply_updates(old, updates)
        norm = optax.tree.norm(grads)
    one = jnp.float32(1)
    sums["loss"] = (sum(sums[name][0] / count for name, count in counts.items()), one)
    sums["grad_norm"] = (norm, one)
    return TrainState(state.step + 1, params, opt_state), sums


def _split_rows(x: jax.Array, parts: int) -> jax.Array:
    """[B, ...] -> [parts, B / parts, ...]; each device's rows are spread over all parts."""
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)


def add_sums(total: Sums, sums: Sums) -> Sums:
    """Adds host sums in float64; an empty total is zero."""
    return {
        name: tuple(float(a) + float(b) for a, b in zip(total.get(name, (0, 0)), pair, strict=True))
        for name, pair in sums.items()
    }


def means(sums: Sums) -> dict[str, float]:
    """{name: sum / count} as Python floats; of device or host scalars."""
    return {name: float(total) / max(float(count), 1.0) for name, (total, count) in sums.items()}
