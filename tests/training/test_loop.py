"""The training loop on linear regression: order of effects, resuming, stopping, and refusals."""

import contextlib
import dataclasses
import os
import re
import signal
import threading

import jax
import numpy as np
import pytest

from bertjax.base import signals
from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.progress import Progress
from bertjax.base.signals import STOPPING
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.loop import last_line
from bertjax.training.metrics_log import MetricsLog, read_metrics
from bertjax.training.model import Model
from bertjax.training.state import TrainState
from bertjax.training.step import means
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.training import toy

pytestmark = pytest.mark.devices(8)

TIMING = ("tokens_per_second", "host_wait")


class Recorder:
    """A metrics log and checkpoints in one, which records all calls in order."""

    def __init__(self):
        self.events, self.rows, self.saved, self.published = [], [], {}, 0

    def write(self, step, split, metrics):
        self.events.append((step, split))
        self.rows.append({"step": step, "split": split, **metrics})

    def publish(self):
        self.published = len(self.rows)

    def save(self, step, trees, metadata):
        assert self.published == len(self.rows), "lines must lie in a bucket before the checkpoint"
        self.events.append((step, "save"))
        self.saved[step] = jax.device_get(trees), metadata

    def wait(self):
        self.events.append("waited")


def _train(phases, intervals, *, state=None, window=None, devices=1, **changes):
    where, recorder = toy.placement(devices), Recorder()
    state, complete = toy.trainer(where, **changes).train(
        toy.initial_state(where) if state is None else state,
        toy.plan(phases, intervals),
        recorder,
        recorder,
        window or {},
    )
    return state, complete, recorder


def _lines(rows):
    """The rows without the values that depend on the machine's speed."""
    return [{name: row[name] for name in row if name not in TIMING} for row in rows]


def test_order_of_effects():
    """Lines come before the evaluation, and that before the checkpoint; the end has all three."""
    _, complete, recorder = _train([toy.phase(0, 7)], toy.intervals(2, 3, 6))
    assert complete
    assert recorder.events == [
        *[(2, "train"), (3, "heldout"), (4, "train")],
        *[(6, "train"), (6, "heldout"), (6, "save")],
        *[(7, "train"), (7, "heldout"), (7, "save")],
        "waited",
    ]


def test_the_last_of_every_step_is_saved():
    state, _, recorder = _train([toy.phase(0, 3)], toy.intervals(1, 1, 1))
    trees, metadata = recorder.saved[3]
    toy.assert_equal(TrainState.from_checkpointables(trees), state)
    assert int(state.step) == 3
    assert metadata == {"data": {"train": "identity"}, "step": 3, "window": {}}


def test_training_learns():
    _, _, recorder = _train([toy.phase(0, 150)], toy.intervals(evaluate=30), devices=8)
    losses = [row["loss"] for row in recorder.rows if row["split"] == "heldout"]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_a_line_is_the_mean_over_all_its_steps():
    """Losses and accuracies are weighted by counts; loss and gradient norm are means over steps."""
    _, _, every = _train([toy.phase(0, 6)], toy.intervals(log=1))
    _, _, third = _train([toy.phase(0, 6)], toy.intervals(log=3))
    single = [row for row in every.rows if row["split"] == "train"]
    assert [row["step"] for row in single] == [1, 2, 3, 4, 5, 6]
    for last in (3, 6):
        window = single[last - 3 : last]
        counts = np.array([toy.count(row["step"] - 1) for row in window])
        assert len(set(counts)) > 1
        line = next(r for r in third.rows if (r["step"], r["split"]) == (last, "train"))
        for name in ("mlm_loss", "mlm_accuracy"):
            expected = (np.array([row[name] for row in window]) * counts).sum() / counts.sum()
            assert_close(line[name], expected)
        for name in ("loss", "grad_norm"):
            assert_close(line[name], np.mean([row[name] for row in window]))
        assert_close(line["learning_rate"], toy.schedule(last - 1))
        assert line["tokens_per_second"] > 0
        assert 0 <= line["host_wait"] <= 1
        assert "mfu" not in line  # the peak of a CPU is not known


def test_phases(capsys, monkeypatch):
    """Each phase has batches from 0, and ends with a line, an evaluation and a checkpoint."""
    asked = {"phase 1": [], "phase 2": []}

    def make(name):
        def batch(number, rows):
            asked[name].append(number)
            return toy.batch(number + 100 * len(name), rows)

        return batch

    phases = [
        toy.phase(0, 5, make("phase 1")),
        toy.phase(5, 8, make("phase 2"), name="phase 2", accumulate=2),
    ]
    left_out = []
    monkeypatch.setattr(Progress, "leave_out", lambda _, seconds: left_out.append(seconds))
    state, complete, recorder = _train(phases, toy.intervals())
    assert complete
    assert int(state.step) == 8
    assert {name: sorted(numbers) for name, numbers in asked.items()} == {
        "phase 1": [0, 1, 2, 3, 4],
        "phase 2": [0, 1, 2],
    }
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("phase")]
    begins = [f"{name}: compiling the step, which may take a minute" for name in asked]
    assert said[::2] == begins
    folder = re.escape(jax.config.jax_compilation_cache_dir)
    read = f"read from {folder} in"  # if an earlier process of the suite has compiled it
    end = rf"compiled in (\d+) s; the next start reads it from {folder}|{read} (\d+) s"
    for name, seconds, line in zip(asked, left_out, said[1::2], strict=True):
        ended = re.fullmatch(f"{name}: (?:{end})", line)
        assert ended and f"{seconds:.0f}" in ended.groups(), line
    both = [(step, what) for step in (5, 8) for what in ("train", "heldout", "save")]
    assert recorder.events == [*both, "waited"]

    for step in (5, 8):  # resuming at the end of a phase, and at the end of the run
        trees, metadata = recorder.saved[step]
        again = jax.device_put(TrainState.from_checkpointables(trees), toy.placement(1).replicated)
        after, complete, _ = _train(phases, toy.intervals(), state=again, window=metadata["window"])
        assert complete
        toy.assert_equal(after, state)


def test_a_phase_trains_its_own_model_with_its_own_objective():
    """As a run does whose model and objective they are."""
    own = dict(
        model=Model.of(toy.Line(dropped=0.5), toy.X), objective=toy.Regression(loss_weight=0.3)
    )
    phase = dataclasses.replace(toy.phase(0, 1), **own)

    def updated(trainer, phase):
        state = trainer.experiment.initial_state(toy.SEED)
        return trainer.update(state, phase, trainer.put(phase, 0), 0.1, toy.SEED)

    trainer = toy.trainer(toy.placement(1))
    toy.assert_equal(updated(trainer, phase), updated(toy.trainer(toy.placement(1), **own), phase))
    (_, one), (_, other) = updated(trainer, phase), updated(trainer, toy.phase(0, 1))
    for name in ("mlm_loss", "grad_norm"):
        assert abs(means(one)[name] / means(other)[name] - 1) > 0.01, name


@pytest.mark.parametrize("devices", [1, 8])
def test_going_on_from_any_checkpoint_is_exact(devices):
    """State and lines are bit-equal, also a line whose window was interrupted."""
    phases = [toy.phase(0, 5), toy.phase(5, 10, name="phase 2")]
    intervals = toy.intervals(log=4, evaluate=3, checkpoint=1)
    state, _, whole = _train(phases, intervals, devices=devices)
    where = toy.placement(devices)
    for step in (1, 3, 5, 7):
        trees, metadata = whole.saved[step]
        lines = [row["step"] for row in whole.rows if row["split"] == "train"]
        assert last_line(step, metadata["window"]) == max(
            (n for n in lines if n <= step), default=0
        )
        shardings = jax.tree.map(lambda leaf: leaf.sharding, toy.abstract(where))
        again = jax.device_put(TrainState.from_checkpointables(trees), shardings)
        after, complete, rest = _train(
            phases, intervals, state=again, window=metadata["window"], devices=devices
        )
        assert complete
        toy.assert_equal(after, state)
        assert _lines(rest.rows) == [row for row in _lines(whole.rows) if row["step"] > step]
        assert {s: m for s, (_, m) in rest.saved.items()} == {
            s: m for s, (_, m) in whole.saved.items() if s > step
        }


def _run(folder, phases, intervals):
    """Trains like the program, from the newest checkpoint of `folder`, if one exists."""
    trainer, plan = toy.trainer(toy.placement(8, "fsdp")), toy.plan(phases, intervals)
    folder.mkdir(exist_ok=True)
    with contextlib.closing(Checkpoints(folder / "checkpoints", keep=2)) as checkpoints:
        state, window = trainer.restore(checkpoints, plan.metadata["data"])
        state = state or trainer.experiment.initial_state(toy.SEED)
        with contextlib.closing(MetricsLog(folder, int(state.step))) as metrics_log:
            return trainer.train(state, plan, checkpoints, metrics_log, window)


@pytest.mark.slow
def test_a_run_that_crashed_goes_on_exactly(tmp_path):
    intervals = toy.intervals(log=3, evaluate=4, checkpoint=5)
    whole, _ = _run(tmp_path / "whole", [toy.phase(0, 18)], intervals)

    def crashing(number, rows):
        if number == 13:
            raise RuntimeError("power cut")
        return toy.batch(number, rows)

    with pytest.raises(RuntimeError, match="power cut"):
        _run(tmp_path / "cut", [toy.phase(0, 18, crashing)], intervals)
    assert [row["step"] for row in read_metrics(tmp_path / "cut")][-1] == 12
    state, complete = _run(tmp_path / "cut", [toy.phase(0, 18)], intervals)
    assert complete
    toy.assert_equal(state, whole)
    one, two = (_lines(read_metrics(tmp_path / name)) for name in ("whole", "cut"))
    assert one == two


@pytest.fixture
def handlers(monkeypatch):
    """Sets signals as on a terminal, even if the suite runs in the background."""
    monkeypatch.setattr(signals, "_leave_the_terminal", lambda: None)  # pytest may have a terminal
    number_of = {signal.SIGINT: signal.default_int_handler}
    before = {n: signal.signal(n, number_of.get(n, signal.SIG_DFL)) for n in STOPPING}
    yield {n: signal.getsignal(n) for n in STOPPING}
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", others_slow(STOPPING, signal.SIGTERM))
def test_a_signal_saves_and_stops_and_the_run_goes_on_exactly(tmp_path, number, handlers):
    intervals = toy.intervals(log=3, evaluate=50, checkpoint=50)
    whole, _ = _run(tmp_path / "whole", [toy.phase(0, 9), toy.phase(9, 25)], intervals)

    def stopping(step, rows):
        if step == 4:
            os.kill(os.getpid(), number)
        return toy.batch(step, rows)

    state, complete = _run(
        tmp_path / "cut", [toy.phase(0, 9, stopping), toy.phase(9, 25)], intervals
    )
    assert not complete
    step = int(state.step)
    assert 1 <= step <= 9
    assert toy.folders(tmp_path / "cut" / "checkpoints") == [str(step)]
    assert {n: signal.getsignal(n) for n in STOPPING} == handlers
    state, complete = _run(tmp_path / "cut", [toy.phase(0, 9), toy.phase(9, 25)], intervals)
    assert complete
    toy.assert_equal(state, whole)
    one, two = (_lines(read_metrics(tmp_path / name)) for name in ("whole", "cut"))
    assert one == two


@pytest.mark.parametrize("moment", ["publish", "wait"])  # after the last step, and after its save
def test_a_signal_after_the_last_step_is_reported_to_the_caller(monkeypatch, moment):
    """A caller with several trainings stops then; the state is the final one."""
    monkeypatch.setattr(Recorder, "save", lambda *_: None)
    monkeypatch.setattr(Recorder, moment, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    state, complete, _ = _train([toy.phase(0, 7)], toy.intervals())
    assert int(state.step) == 7
    assert not complete


def test_a_thread_can_train():
    """On a thread, signals cannot be handled."""
    results = []
    thread = threading.Thread(
        target=lambda: results.append(_train([toy.phase(0, 2)], toy.intervals())[1])
    )
    thread.start()
    thread.join()
    assert results == [True]


# ------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_loss_that_is_not_finite_stops_the_run(value):
    def poisoned(number, rows):
        batch = toy.batch(number, rows)
        if number == 3:
            batch["y"][batch["weight"] > 0] = value
        return batch

    recorder = Recorder()
    where = toy.placement(1)
    phases = [toy.phase(0, 2), toy.phase(2, 9, poisoned, name="phase 2")]
    plan = toy.plan(phases, toy.intervals(log=2, checkpoint=1))
    with pytest.raises(NonFiniteLoss) as caught:
        toy.trainer(where).train(toy.initial_state(where), plan, recorder, recorder, {})
    assert str(caught.value).startswith(f"step 6: the loss is {value}, the gradient's norm")
    assert "the batch is number 3 of phase 2, seed 7" in str(caught.value)
    assert sorted(recorder.saved) == [1, 2, 3, 4, 5]
    for trees, _ in recorder.saved.values():
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trees))
    assert all(np.isfinite(row["loss"]) for row in recorder.rows)


def test_a_gradient_that_is_not_finite_stops_the_run():
    class Cusp(toy.Regression):
        def outputs(self, model, params, batch, rngs):
            cusp = jax.numpy.sqrt(jax.numpy.abs(params["b"] * 0))  # 0, with a slope of nan
            return {"y": model(params, batch)["y"] + cusp}

    with pytest.raises(NonFiniteLoss, match="step 1: the loss is [0-9.]+, the gradient's norm nan"):
        _train([toy.phase(0, 3)], toy.intervals(), objective=Cusp())


def test_check_refuses_batches_that_do_not_divide():
    trainer = toy.trainer(toy.placement(8))
    trainer.check([toy.phase(0, 3)])
    with pytest.raises(InputError, match="a batch of 4 sequences does not divide over 8 devices"):
        trainer.check([toy.phase(0, 3), toy.phase(3, 4, accumulate=2)])


def test_dry_run_makes_one_step_and_one_evaluation_of_every_phase():
    phases = [toy.phase(0, 5), toy.phase(5, 8, name="phase 2")]
    results = toy.trainer(toy.placement(8)).dry_run(toy.plan(phases))
    _, _, recorder = _train([toy.phase(0, 1)], toy.intervals(), devices=8)
    train = recorder.rows[0]
    assert results.keys() == {"phase 1", "phase 2"}
    assert results["phase 1"]["train"] == {
        name: train[name] for name in results["phase 1"]["train"]
    }
    assert results["phase 2"]["heldout"].keys() == {
        *["loss", "mlm_loss", "mlm_accuracy", "mlm_accuracy_stderr", "mlm_perplexity"]
    }
