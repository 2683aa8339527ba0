"""The phases of a run are compiled before its first step, and say what they need of a device."""

import jax
import pytest

from bertjax.base.errors import InputError
from bertjax.runs import device_memory
from tests.training import toy

_COMPILED = "/jax/core/compile/backend_compile_duration"


def _given(monkeypatch, limit):
    """A trainer, its state, and two phases, on a device that has `limit` bytes."""
    monkeypatch.setattr(device_memory, "device_memory", lambda device: limit)
    trainer = toy.trainer(toy.placement(1))
    phases = [toy.phase(0, 5), toy.phase(5, 8, name="phase 2", accumulate=4)]
    return trainer, toy.plan(phases), trainer.experiment.initial_state(toy.SEED)


def test_each_phase_is_compiled_once_and_says_what_it_needs(monkeypatch, capsys):
    trainer, plan, state = _given(monkeypatch, 2**20)
    state_and_batch = sum(
        leaf.nbytes
        for leaf in jax.tree.leaves((state, trainer.put(plan.phases[0], 0)))
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )
    device_memory.compile_phases(trainer, plan, state)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["phase 1"] * 2 + ["phase 2"] * 2
    for line in lines[1::2]:  # the rate and the seed have 4 bytes each
        assert "of the 1.00 MiB that JAX may use of cpu: " in line
        assert f"{(state_and_batch + 8) / 1024:.2f} KiB for the state and a batch" in line

    compiled = []

    def note(event, seconds, **_):
        compiled.extend([event] * (event == _COMPILED))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for phase in plan.phases:
            state, _ = trainer.update(
                state, phase, trainer.put(phase, 1), plan.schedule(3), plan.seed
            )
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert compiled == []


def test_a_phase_that_does_not_fit_is_named_before_the_first_step(monkeypatch):
    trainer, plan, state = _given(monkeypatch, 1000)
    phases = plan.phases
    plan = toy.plan([phases[1]])
    with pytest.raises(InputError) as raised:
        device_memory.compile_phases(trainer, plan, state)
    message = str(raised.value)
    assert message.startswith("phase 2: a step needs ")
    assert "more than the 1000 bytes that JAX may use of cpu: in this order, " in message
    assert "set --config.phase_2.accumulate=8 (then 16, and so on), set --config.model." in message


@pytest.mark.devices(8)
def test_a_compiler_that_finds_no_place_names_the_phase(monkeypatch):
    """As that of a TPU; several devices can share the state."""
    monkeypatch.setattr(device_memory, "device_memory", lambda device: 2**20)
    trainer = toy.trainer(toy.placement(8))

    def refuse(*_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm"
        )

    monkeypatch.setattr(trainer, "needs", refuse)
    plan = toy.plan([toy.phase(0, 5)])
    with pytest.raises(InputError, match=r"phase_1\.accumulate=2 .*, set --config\.layout=zero1"):
        device_memory.compile_phases(trainer, plan, trainer.experiment.initial_state(toy.SEED))


def test_phases_that_are_over_are_not_compiled(monkeypatch, capsys):
    trainer, plan, state = _given(monkeypatch, 2**20)
    state = state.replace(step=state.step + 8)
    device_memory.compile_phases(trainer, plan, state)
    assert capsys.readouterr().out == ""


def test_nothing_is_done_where_the_memory_is_not_known(monkeypatch, capsys):
    trainer, plan, state = _given(monkeypatch, None)
    device_memory.compile_phases(trainer, plan, state)
    assert capsys.readouterr().out == "" and not trainer._steps
