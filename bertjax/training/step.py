"""One update as a pure function of (state, batch)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertjax.training.model import Arrays, Model, Params, merged
from bertjax.training.objective import HostSums, Objective, Rngs, Sums
from bertjax.training.reshard import STAY, Reshard
from bertjax.training.state import TrainState


def gradient(
    params: Params,
    frozen: Params,
    batch: Arrays,
    counts: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    model: Model,
    objective: Objective,
    moves: Reshard,
) -> tuple[Params, Sums, Arrays]:
    """A microbatch's share of the gradient and sums of the whole batch, and what it carries on.

    `params` are gathered. The losses are divided by `counts`, the `whole_counts` of the whole
    batch, so that the gradients of all microbatches add to the batch's, however its rows are
    divided.
    """

    def loss(params: Params) -> tuple[jax.Array, tuple[Sums, Arrays]]:
        sums, carry = objective.sums(model, merged(params, frozen), batch, Rngs(key))
        return _total(sums, counts, objective.loss_weights), (sums, carry)

    grads, (sums, carry) = jax.grad(loss, has_aux=True)(params)
    return moves.scatter(grads), sums, carry


def _total(sums: Sums, counts: Mapping[str, jax.Array], weights: Mapping[str, float]) -> jax.Array:
    """The losses of `sums`, each divided by the whole batch's count of it, as one number."""
    return weighted({name: sums[name][0] / count for name, count in counts.items()}, weights)


def weighted(losses: Mapping[str, Any], weights: Mapping[str, float]) -> Any:
    """The sum of the losses, each times its weight, without products with 1."""
    return sum(
        loss if weights[name] == 1 else weights[name] * loss for name, loss in losses.items()
    )


def whole_counts(counts: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The divisors of the losses, from the `Objective.counts` of the whole batch."""
    return {name: jnp.maximum(count, 1.0) for name, count in counts.items()}


def step_key(seed: jax.Array | int, step: jax.Array) -> jax.Array:
    """The key of an update, which determines its masks of dropout and other random numbers."""
    return jax.random.fold_in(jax.random.key(seed), step)


def updated(
    state: TrainState,
    grads: Params,
    sums: Sums,
    counts: Mapping[str, jax.Array],
    learning_rate: jax.Array,
    *,
    weights: Mapping[str, float],
    optimizer: optax.GradientTransformationExtraArgs,
) -> tuple[TrainState, Sums]:
    """The next state, from the gradient and the sums of a whole batch; see `train_step`."""
    with jax.named_scope("optimizer"):
        updates, opt_state = optimizer.update(
            grads, state.opt_state, state.params, learning_rate=learning_rate
        )
        params = optax.apply_updates(state.params, updates)
        average = state.average and state.average.after(params)
        norm = optax.tree.norm(grads)
    one = jnp.float32(1)
    sums["loss"] = (_total(sums, counts, weights), one)
    sums["grad_norm"] = (norm, one)
    step = state.step + 1
    state = state.replace(step=step, params=params, opt_state=opt_state, average=average)
    return state, sums


def train_step(
    state: TrainState,
    frozen: Params,
    batch: Arrays,
    learning_rate: jax.Array,
    seed: jax.Array | int,
    *,
    model: Model,
    objective: Objective,
    optimizer: optax.GradientTransformationExtraArgs,
    accumulate: int,
    moves: Reshard = STAY,
) -> tuple[TrainState, Sums]:
    """One update, in `accumulate` microbatches, one after the other to save memory.

    `seed` and the step determine all random numbers. The sums have "loss" and "grad_norm" (before
    clipping), too.
    """
    key = step_key(seed, state.step)
    counts = whole_counts(objective.counts(batch))
    of_part = partial(gradient, model=model, objective=objective, moves=moves)
    batch = {**batch, **state.carry}
    params = moves.gather(state.params)
    if accumulate == 1:
        grads, sums, carry = of_part(params, frozen, batch, counts, key)
    else:

        def add(
            total: tuple[Params, Sums], numbered: tuple[jax.Array, Arrays]
        ) -> tuple[tuple[Params, Sums], Arrays]:
            number, part = numbered
            *new, carry = of_part(params, frozen, part, counts, jax.random.fold_in(key, number))
            return jax.tree.map(jnp.add, total, tuple(new)), carry

        parts = jax.tree.map(lambda x: split_rows(x, accumulate), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = _zeros_like(of_part, params, frozen, first, counts, key)[:2]
        (grads, sums), carry = jax.lax.scan(add, zeros, (jnp.arange(accumulate), parts))
        carry = jax.tree.map(join_rows, carry)
    weights = objective.loss_weights
    state, sums = updated(
        state, grads, sums, counts, learning_rate, weights=weights, optimizer=optimizer
    )
    return state.replace(carry=carry), sums


def _zeros_like(function: Callable[..., Any], *arguments: Any) -> Any:
    """Zeros of the shapes that `function(*arguments)` has."""
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def split_rows(x: jax.Array, parts: int) -> jax.Array:
    """[B, ...] -> [parts, B / parts, ...]: microbatches, each with rows of every device."""
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)


def join_rows(x: jax.Array) -> jax.Array:
    """The inverse of `split_rows`."""
    return x.swapaxes(0, 1).reshape(-1, *x.shape[2:])


def add_sums(total: HostSums, sums: Sums) -> HostSums:
    """Adds `sums`, as arrays on the host, to `total` in float64; what one of them lacks is zero."""
    none = (0.0, 0.0)
    return total | {
        name: (total.get(name, none)[0] + float(value), total.get(name, none)[1] + float(count))
        for name, (value, count) in sums.items()
    }


def means(sums: Sums | HostSums) -> dict[str, float]:
    """{name: sum / count} as Python floats."""
    return {name: float(total) / max(float(count), 1.0) for name, (total, count) in sums.items()}
