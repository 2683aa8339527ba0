"""One update, and one evaluation, as pure functions of (state, batch)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertjax.training.moves import STAY, Moves
from bertjax.training.state import TrainState

Batch = Mapping[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]


class LossFunction(NamedTuple):
    """The function that is minimized: the sum of weight * sum / count over the names of `weights`.

    Attributes:
      sums: (params, batch, key, deterministic=...) -> {name: (sum, count)} of losses and metrics.
        The key decides everything random; with `deterministic`, as in evaluation, there is no
        dropout.
      counts: batch -> {loss name: count}: what divides each loss, known beforehand.
      weights: loss name -> its weight.
      derived: means of an evaluation -> further metrics that follow from them.
    """

    sums: Callable[..., Sums]
    counts: Callable[[Batch], dict[str, jax.Array]]
    weights: Mapping[str, float]
    derived: Callable[[Mapping[str, float]], dict[str, float]] = lambda metrics: {}


def gradient(
    weights: Any,
    part: Batch,
    counts: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    loss: LossFunction,
    moves: Moves,
) -> tuple[Any, Sums]:
    """Computes the share of a part of a batch in the whole batch's gradient and sums.

    Args:
      weights: gathered parameters.
      part: arrays of some of the batch's rows, or of all.
      counts: of `whole_counts`. Each part's losses are divided by the whole batch's counts, so
        that the gradients of all parts add to the batch's, however its rows are spread.
      key: of dropout, and of what else is random in it.
      moves: from where the parameters are stored to where a step uses them, and back.
    """

    def minimized(weights):
        sums = loss.sums(weights, part, key, deterministic=False)
        return _total(sums, counts, loss.weights), sums

    grads, sums = jax.grad(minimized, has_aux=True)(weights)
    return moves.spread(grads), sums


def _total(sums: Sums, counts: Mapping[str, jax.Array], weights: Mapping[str, float]) -> jax.Array:
    """The losses of `sums`, each divided by the whole batch's count of it, as one number."""
    return weighted({name: sums[name][0] / count for name, count in counts.items()}, weights)


def weighted(losses: Mapping[str, Any], weights: Mapping[str, float]) -> Any:
    """The sum of the losses, each times its weight; none is multiplied by 1."""
    return sum(
        loss if weights[name] == 1 else weights[name] * loss for name, loss in losses.items()
    )


def whole_counts(counts: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The divisors of the losses, from the `LossFunction.counts` of the whole batch."""
    return {name: jnp.maximum(count, 1.0) for name, count in counts.items()}


def dropout_key(seed: jax.Array | int, step: jax.Array) -> jax.Array:
    """Decides every mask of an update, and what else is random in it."""
    return jax.random.fold_in(jax.random.key(seed), step)


def updated(
    state: TrainState,
    grads: Any,
    sums: Sums,
    counts: Mapping[str, jax.Array],
    *,
    weights: Mapping[str, float],
    optimizer: optax.GradientTransformation,
) -> tuple[TrainState, Sums]:
    """The next state, of the gradient and the sums of a whole batch; see `train_step`."""
    with jax.named_scope("optimizer"):
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = state.average and state.average.after(params)
        norm = optax.tree.norm(grads)
    one = jnp.float32(1)
    sums["loss"] = (_total(sums, counts, weights), one)
    sums["grad_norm"] = (norm, one)
    return TrainState(state.step + 1, params, opt_state, average), sums


def train_step(
    state: TrainState,
    batch: Batch,
    *,
    loss: LossFunction,
    optimizer: optax.GradientTransformation,
    seed: jax.Array | int,
    accumulate: int,
    moves: Moves = STAY,
) -> tuple[TrainState, Sums]:
    """One update.

    Args:
      batch: arrays of B rows.
      loss: what is minimized.
      seed: of dropout; with the step it decides every mask.
      accumulate: the batch is taken in this many parts, one after the other, to save memory.
      moves: see `gradient`.

    Returns:
      The next state and the sums, with "loss" and "grad_norm" (before clipping) among them.
    """
    key = dropout_key(seed, state.step)
    counts = whole_counts(loss.counts(batch))
    part_gradient = partial(gradient, loss=loss, moves=moves)
    weights = moves.gather(state.params)
    if accumulate == 1:
        grads, sums = part_gradient(weights, batch, counts, key)
    else:

        def add_part(total, numbered_part):
            number, part = numbered_part
            new = part_gradient(weights, part, counts, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, total, new), None

        parts = jax.tree.map(lambda x: _split_rows(x, accumulate), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = _zero_total(part_gradient, weights, first, counts, key)
        (grads, sums), _ = jax.lax.scan(add_part, zeros, (jnp.arange(accumulate), parts))
    return updated(state, grads, sums, counts, weights=loss.weights, optimizer=optimizer)


def _zero_total(part_gradient: Callable, *arguments) -> tuple[Any, Sums]:
    """Zeros of the shapes that `part_gradient(*arguments)` has."""
    shapes = jax.eval_shape(part_gradient, *arguments)
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


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
