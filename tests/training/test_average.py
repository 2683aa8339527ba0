"""The moving average of the parameters: its values, where it lies, and how it is saved."""

import contextlib

import jax
import numpy as np
import pytest

from bertjax.training.checkpoint import Checkpoints
from bertjax.training.objective import Rngs
from bertjax.training.state import Average, TrainState
from tests.helpers.closeness import assert_close
from tests.training import toy

pytestmark = pytest.mark.devices(8)

DECAY = 0.8


def _updates(state, where, numbers, ema=DECAY):
    """The states after updates with these batches, on the host."""
    trainer, phase, states = toy.trainer(where, ema), toy.phase(0, 9), []
    for number in numbers:
        state, _ = trainer.update(state, phase, trainer.put(phase, number), 0.1, toy.SEED)
        states.append(jax.device_get(state))
    return state, states


def test_it_is_the_average_by_numpy():
    where = toy.placement(1)
    initial = toy.initial_state(where, DECAY)
    expected = jax.tree.map(np.float64, jax.device_get(initial.params))
    toy.assert_equal(initial.average.weights, initial.params)
    for state in _updates(initial, where, range(6))[1]:
        expected = jax.tree.map(lambda a, p: 0.8 * a + 0.2 * p, expected, state.params)
        for name, leaf in expected.items():
            found = state.average.weights[name]
            assert found.dtype == np.float32
            assert_close(found, leaf)
        assert abs(expected["w"] - state.params["w"]).max() > 1e-2


def test_it_changes_nothing_else():
    where = toy.placement(1)
    (_, with_it), (_, without) = (
        _updates(toy.initial_state(where, ema), where, range(3), ema) for ema in (DECAY, 0.0)
    )
    toy.assert_equal(with_it[-1].replace(average=None), without[-1])
    assert without[-1].checkpointables().keys() == {"params", "optimizer"}


def test_it_lies_where_the_parameters_do():
    split = toy.placement(8, "fsdp")
    state, _ = _updates(toy.initial_state(split, DECAY), split, range(2))
    assert state.average.weights["w"].sharding == state.params["w"].sharding
    assert state.evaluated() is state.average.weights


def test_it_is_saved_and_opened_alone(tmp_path):
    """A run that goes on has the same average to the bit; readers need neither of the others."""
    where = toy.placement(8, "fsdp")
    half, _ = _updates(toy.initial_state(where, DECAY), where, range(3))
    with contextlib.closing(Checkpoints(tmp_path / "checkpoints", keep=1)) as checkpoints:
        checkpoints.save(3, half.checkpointables(), {"step": 3})
        checkpoints.wait()
        weights = toy.abstract(toy.placement(1)).params
        trees, _ = checkpoints.restore({"average": Average(weights, DECAY)})
        toy.assert_equal(trees["average"].weights, half.average.weights)
        trees, _ = checkpoints.restore(toy.abstract(where, DECAY).checkpointables())
        again = TrainState.from_checkpointables(trees)
        old, _ = checkpoints.restore(toy.abstract(where).checkpointables())  # it has one more
    toy.assert_equal(TrainState.from_checkpointables(old).params, half.params)
    toy.assert_equal(_updates(again, where, range(3, 6))[0], _updates(half, where, range(3, 6))[0])


def test_it_begins_with_given_weights():
    state = toy.initial_state(toy.placement(1), DECAY)
    started = state.started(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree))
    expected = jax.tree.map(lambda leaf: leaf + 1, state.params)
    toy.assert_equal(started.params, expected)
    toy.assert_equal(started.average.weights, expected)


def test_evaluations_are_of_the_average():
    where = toy.placement(1)
    phase = toy.phase(0, 4)
    results = toy.trainer(where, DECAY).dry_run(toy.plan([phase]))["phase 1"]["heldout"]
    _, (after,) = _updates(toy.initial_state(where, DECAY), where, [0])
    batch, still = phase.held_out.batch(0, slice(None)), Rngs(jax.random.key(0), True)
    sums_of = jax.jit(lambda weights: toy.OBJECTIVE.sums(toy.MODEL, weights, batch, still)[0])
    sums = {
        name: sums_of(weights)["mlm_loss"]
        for name, weights in (("average", after.average.weights), ("last", after.params))
    }
    means = {name: float(total / count) for name, (total, count) in sums.items()}
    assert_close(results["loss"], means["average"])
    assert results["loss"] != pytest.approx(means["last"], rel=1e-3)
