"""Arrays that a step hands to the next: which rows get them, and how they are saved."""

import contextlib

import jax
import numpy as np
import pytest

from bertjax.training.checkpoint import Checkpoints
from bertjax.training.model import Model
from tests.helpers.closeness import assert_close
from tests.training import toy

pytestmark = pytest.mark.devices(8)

STILL = Model.of(toy.Line(dropped=0.0), toy.X)


class Running(toy.Regression):
    """The model reads a sum of a row's inputs so far, of which each counts half the next."""

    def carried(self, model):
        return {"memory": jax.ShapeDtypeStruct((toy.WIDTH,), "float32")}

    def outputs(self, model, params, batch, rngs):
        memory = 0.5 * batch["memory"] + batch["x"]
        return {**model(params, {"x": memory}, rngs.dropout()), "memory": memory}


def _memory(numbers):
    """What is carried after some batches, [B, WIDTH]."""
    memory = np.zeros((toy.ROWS, toy.WIDTH))
    for number in numbers:
        memory = 0.5 * memory + toy.batch(number, slice(None))["x"]
    return memory


def _trainer(devices, name="data", model=STILL):
    return toy.trainer(toy.placement(devices, name), objective=Running(), model=model)


def _updated(trainer, accumulate, steps=3):
    phase, state = (
        toy.phase(0, 9, accumulate=accumulate),
        trainer.experiment.initial_state(toy.SEED),
    )
    assert not state.carry["memory"].any()
    for number in range(steps):
        state, _ = trainer.update(state, phase, trainer.put(phase, number), 0.1, toy.SEED)
    return state


@pytest.mark.parametrize("devices, accumulate", [(1, 1), (1, 2), (4, 2), (8, 1)])
def test_each_row_gets_its_own_in_any_number_of_microbatches(devices, accumulate):
    trainer = _trainer(devices)
    state = _updated(trainer, accumulate)
    assert_close(state.carry["memory"], _memory(range(3)))
    assert state.carry["memory"].sharding == trainer.experiment.state.carry["memory"].sharding
    whole = _updated(_trainer(1), 1)
    assert_close(state.params, whole.params, terms=1024)  # after three updates by Adam


def test_a_run_that_was_stopped_goes_on_exactly(tmp_path):
    states = {}
    for name, lengths in {"whole": [6], "resumed": [3, 6]}.items():
        for length in lengths:
            trainer, plan = _trainer(8, "fsdp", toy.MODEL), toy.plan([toy.phase(0, length)])
            with contextlib.closing(Checkpoints(tmp_path / name, keep=1)) as checkpoints:
                state, window = trainer.restore(checkpoints, plan.metadata["data"])
                state = state or trainer.experiment.initial_state(toy.SEED)
                assert int(state.step) == (3 if length != lengths[0] else 0)
                states[name], _ = trainer.train(state, plan, checkpoints, None, window)
    toy.assert_equal(states["resumed"], states["whole"])
    assert states["whole"].carry["memory"].any()


def test_evaluation_begins_with_zeros_and_carries_from_batch_to_batch():
    trainer, phase = _trainer(8), toy.phase(0, 9)
    state = _updated(trainer, 1)
    params = jax.device_get(state.params)
    found = [trainer.evaluate(state, phase, batches)["loss"] for batches in (1, 2, 2)]
    loss = count = 0.0
    for batches in (1, 2):
        batch = phase.held_out.batch(batches - 1, slice(None))
        memory = _memory(range(1000, 1000 + batches))
        error = (memory @ params["w"] + params["b"] - batch["y"]) ** 2
        loss, count = loss + (error * batch["weight"]).sum(), count + batch["weight"].sum()
        assert_close(found[batches - 1], loss / count)
    assert found[1] == found[2]
