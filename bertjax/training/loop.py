"""The training loop: phases of steps, with evaluation, checkpoints, and a way to stop and go on."""

import contextlib
import dataclasses
import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax.experimental import multihost_utils

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.limits import Count, Many
from bertjax.base.progress import Progress
from bertjax.base.signals import STOPPING, catch_signals
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.compilation import BEGINS, watched
from bertjax.training.compiled_step import CompiledStep
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.feed import Feed
from bertjax.training.hardware import peak_flops
from bertjax.training.health import updates_in
from bertjax.training.memory import Needs
from bertjax.training.metrics_log import HELDOUT, JUDGED, TRAIN, MetricsLog
from bertjax.training.model import Arrays, Model, merged
from bertjax.training.objective import HostSums, Objective, Sums
from bertjax.training.sharding.hosts import say
from bertjax.training.sharding.placement import HostBatch
from bertjax.training.state import TrainState
from bertjax.training.step import add_sums, means

Schedule = Callable[[int], float]
Window = Mapping[str, Any]  # sums of metrics by name, each with its count


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of steps with one kind of batches.

    Attributes:
      first_step, last_step: updates first_step + 1 to last_step are made in this phase.
      microbatches: step within the phase -> those of its batch. Each is a function that makes
        given rows of one on the host. They may have different shapes.
      held_out: the batches for evaluation while it trains; None: it is not evaluated.
      rows: the rows of each microbatch, over all hosts.
      accumulate: into how many a batch is split that comes as one microbatch.
      tokens: positions of a training batch, padding included; their mean where lengths differ.
      flops: useful operations of one update; their mean where lengths differ.
      model: one that computes with the same parameters in another way; None: the experiment's.
      objective: None: the experiment's.
    """

    name: str
    first_step: int
    last_step: int
    microbatches: Callable[[int], Sequence[Callable[[slice], HostBatch]]]
    held_out: HeldOut | None
    rows: int
    accumulate: int
    tokens: int
    flops: float
    model: Model | None = None
    objective: Objective | None = None


@dataclasses.dataclass(frozen=True)
class Intervals:
    """The steps between events of a run.

    Attributes:
      log: between lines of metrics.
      evaluate: between evaluations.
      checkpoint: between checkpoints.
      eval_batches: the batches of an evaluation.
    """

    log: Count = 100
    evaluate: Count = 5_000
    checkpoint: Count = 5_000
    eval_batches: Many = 40


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """One run of an experiment.

    Attributes:
      schedule: update count -> learning rate.
      seed: the seed and the step determine all random numbers.
      metadata: a JSON object for every checkpoint; "data" is the identity of the training data.
      judge: evaluates a state besides the held-out text, on all processes, and returns metrics.
    """

    phases: Sequence[Phase]
    schedule: Schedule
    seed: int
    intervals: Intervals
    metadata: Mapping[str, Any]
    judge: Callable[[TrainState], dict[str, float]] | None = None

    @property
    def last_step(self) -> int:
        """The number of its updates."""
        return self.phases[-1].last_step

    def spent(self, step: int) -> dict[str, float]:
        """The tokens (positions, padding included) and useful operations of updates 1 to `step`."""
        updates = updates_in([phase.last_step for phase in self.phases], step)
        return {
            name: sum(n * getattr(p, name) for n, p in zip(updates, self.phases, strict=True))
            for name in ("tokens", "flops")
        }


class Trainer:
    """An experiment and its compiled programs, which all runs with it share."""

    def __init__(self, experiment: Experiment):
        self.experiment = experiment
        # The keys contain the `id` of a model or of an experiment, which is kept alive here.
        self._experiments: dict[tuple[int, Objective], Experiment] = {}
        self._evaluators: dict[int, Evaluator] = {}
        self._steps: dict[tuple[int, int], CompiledStep] = {}
        self._announced: set[tuple[int, str]] = set()  # the experiments and phases
        self._compiled: set[Any] = set()  # the experiments, and the shapes of a microbatch
        mesh = experiment.placement.mesh
        peak = peak_flops(mesh.devices.flat[0].device_kind)
        self._peak = peak and peak * mesh.size

    def experiment_of(
        self, model: Model | None = None, objective: Objective | None = None
    ) -> Experiment:
        """The experiment of a phase; for the arguments see `Phase`."""
        main = self.experiment
        model, objective = model or main.model, objective or main.objective
        if model is main.model and objective == main.objective:
            return main
        key = id(model), objective
        if key not in self._experiments:
            changed = dataclasses.replace(main, model=model, objective=objective)
            self._experiments[key] = changed
        return self._experiments[key]

    def step(self, accumulate: int, experiment: Experiment | None = None) -> CompiledStep:
        """The compiled update; `experiment` is that of a phase."""
        experiment = experiment or self.experiment
        key = id(experiment), accumulate
        if key not in self._steps:
            self._steps[key] = CompiledStep(experiment, accumulate)
        return self._steps[key]

    def lowered_step(
        self,
        batch: Mapping[str, jax.ShapeDtypeStruct],
        accumulate: int,
        experiment: Experiment | None = None,
    ) -> jax.stages.Lowered:
        """The update (of a phase, with `experiment`), lowered for devices only described."""
        experiment = experiment or self.experiment
        # Both are made before the described devices become the current ones.
        step, state = self.step(accumulate, experiment), experiment.state
        with experiment.placement.active():
            return step.lower(state, batch)

    def update(
        self,
        state: TrainState,
        phase: Phase,
        microbatches: Sequence[Arrays],
        rate: float,
        seed: int,
    ) -> tuple[TrainState, Sums]:
        """One update with a batch as `put` gives it; the state is donated."""
        step = self.step(phase.accumulate, self.experiment_of(phase.model, phase.objective))
        with self.experiment.placement.active():
            return step(state, microbatches, rate, seed)

    def needs(self, state: TrainState, plan: RunPlan, phase: Phase) -> Needs:
        """The needs of an update with one microbatch, which is compiled for `train`."""
        step = self.step(phase.accumulate, self.experiment_of(phase.model, phase.objective))
        microbatches, rate = self.put(phase, 0), plan.schedule(phase.first_step)
        self._is_new(phase, microbatches)  # from now on it is not
        with self.experiment.placement.active():
            return step.needs(state, microbatches, rate, plan.seed)

    def evaluate(self, state: TrainState, phase: Phase, batches: int) -> dict[str, float]:
        """The metrics of the first batches of a phase's held-out text; {} if it has none."""
        if phase.held_out is None:
            return {}
        experiment = self.experiment_of(phase.model, phase.objective)
        if id(experiment) not in self._evaluators:
            self._evaluators[id(experiment)] = Evaluator(
                experiment.objective, experiment.model, experiment.placement
            )
        used = jax.tree.map(lambda leaf: leaf.sharding, experiment.used)
        params = jax.device_put(state.evaluated(), used)  # once for all batches
        params = merged(params, experiment.frozen)
        return self._evaluators[id(experiment)].evaluate(params, phase.held_out, batches)

    def put(self, phase: Phase, number: int) -> list[Arrays]:
        """The microbatches of batch `number` of a phase, on the devices."""
        placement = self.experiment.placement
        return [placement.put(microbatch, phase.rows) for microbatch in phase.microbatches(number)]

    def check(self, phases: Sequence[Phase]) -> None:
        """Checks, before the compilation, that all phases' batches divide over the devices."""
        for phase in phases:
            rows = phase.rows // phase.accumulate
            self.experiment.placement.check(rows, length=phase.tokens // phase.rows)
            if phase.held_out:
                self.experiment.placement.host_rows(phase.held_out.batch_size)

    def dry_run(self, plan: RunPlan) -> dict[str, dict[str, dict[str, float]]]:
        """Does one update and one evaluation of every phase, and returns their metrics."""
        results, state = {}, self.experiment.initial_state(plan.seed)
        for phase in plan.phases:
            rate = plan.schedule(phase.first_step)
            state, sums = self.update(state, phase, self.put(phase, 0), rate, plan.seed)
            held_out = self.evaluate(state, phase, 1)
            results[phase.name] = {"train": means(sums), "heldout": held_out}
        return results

    def restore(
        self, checkpoints: Checkpoints, data: Mapping[str, str], step: int | None = None
    ) -> tuple[TrainState | None, Window]:
        """The state that a run goes on from (None if it has not started), and the window for
        `train`.

        InputError if it was started on other data than `data` (see `RunPlan.metadata`), or if no
        checkpoint is whole; if `step` is given, that one.
        """
        restored = checkpoints.restore(self.experiment.state.checkpointables(), step)
        if restored is None:
            return None, {}
        trees, metadata = restored
        if metadata["data"] != data:
            raise InputError(
                "the run was started on other data than the config names now: give it what it was "
                "started with, or choose another --workdir"
            )
        state = TrainState.from_checkpointables(trees)
        say(f"going on from step {int(state.step)}")
        return state, metadata["window"]

    def train(
        self,
        state: TrainState,
        plan: RunPlan,
        checkpoints: Checkpoints,
        metrics_log: MetricsLog | None,
        window: Window,
    ) -> tuple[TrainState, bool]:
        """Runs all phases, from the step of `state` on.

        The order of effects after an update: metrics are read, a line is written, held-out text
        is evaluated, the state is saved. So no checkpoint lacks the lines before it, and none has
        a loss that is not finite (`NonFiniteLoss` is raised).

        Args:
          metrics_log: None on processes other than the first.
          window: metrics since the last line, as an earlier run saved them; {} at first.

        Returns:
          The last state, and False if a signal to stop came, even at the very end; the state is
          saved in any case.
        """
        step, last = int(state.step), plan.last_step
        progress = Progress("training", last, " steps", initial=step) if metrics_log else None
        with _stop_signal() as stopping:
            session = _Session(plan, checkpoints, metrics_log, progress, stopping)
            session.total = {name: tuple(pair) for name, pair in window.items()}
            for phase in plan.phases:
                if step < phase.last_step and not session.stopped:
                    state, step = self._train_phase(state, step, phase, session)
            checkpoints.wait()  # a signal that comes now shall not end the last save
            # (Several processes agree on a step to stop at; now none is left.)
            stopped = session.stopped or (jax.process_count() == 1 and stopping(step))
        if progress:
            progress.close()
        return state, not stopped

    def _train_phase(
        self, state: TrainState, step: int, phase: Phase, session: "_Session"
    ) -> tuple[TrainState, int]:
        """Updates step + 1 to the phase's last, or to the one at which a signal came."""
        numbers = range(step - phase.first_step, phase.last_step - phase.first_step)
        unread: Sums | None = None  # of the last update
        feed = Feed(
            partial(self.put, phase),
            numbers,
            busy=lambda: not (unread is None or unread["loss"][0].is_ready()),  # type: ignore[attr-defined]
        )
        clock = _Clock(feed)
        for _, microbatches in feed:
            new = self._is_new(phase, microbatches)
            with self._compiling(phase, session, clock) if new else contextlib.nullcontext():
                rate = session.plan.schedule(step)
                state, sums = self.update(state, phase, microbatches, rate, session.plan.seed)
            # The update before, read while the devices work on this one.
            if unread:
                self._read(unread, step, phase, session, clock)
            step, unread = step + 1, sums
            session.stopped = session.stopping(step)
            if session.is_due(step, phase):
                self._read(unread, step, phase, session, clock)
                unread = None
                self._report_and_save(state, step, phase, session, clock)
            if session.stopped:
                break
        return state, step

    def _is_new(self, phase: Phase, microbatches: Sequence[Arrays]) -> bool:
        """Whether a microbatch has shapes that no other had, so that a program is compiled."""
        experiment = id(self.experiment_of(phase.model, phase.objective))
        shapes = [
            tuple((name, x.shape) for name, x in microbatch.items()) for microbatch in microbatches
        ]
        found = {(experiment, phase.accumulate, len(microbatches) > 1, each) for each in shapes}
        new = not found <= self._compiled
        self._compiled |= found
        return new

    @contextlib.contextmanager
    def _compiling(self, phase: Phase, session: "_Session", clock: "_Clock") -> Iterator[None]:
        """Keeps the block out of all rates; prints its time if it is the first of a phase."""
        key = id(self.experiment_of(phase.model, phase.objective)), phase.name
        progress = session.progress if key not in self._announced else None
        self._announced.add(key)
        begin = time.perf_counter()
        if progress:
            progress.say(f"{phase.name}: {BEGINS}")
        with clock.paused(), watched() as said:
            yield
        seconds = time.perf_counter() - begin
        if session.progress:
            session.progress.leave_out(seconds)
        if progress:
            progress.say(f"{phase.name}: {said()}")

    def _read(
        self, sums: Sums, step: int, phase: Phase, session: "_Session", clock: "_Clock"
    ) -> None:
        """Reads the sums of one update from the devices, and adds them to the session's."""
        sums = jax.device_get(sums)
        loss, norm = means(sums)["loss"], means(sums)["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NonFiniteLoss(
                f"step {step}: the loss is {loss}, the gradient's norm {norm}; the batch is "
                f"number {step - 1 - phase.first_step} of {phase.name}, seed "
                f"{session.plan.seed}. Lower the learning rate or lengthen the warm-up; the last "
                "checkpoint is whole."
            )
        session.total = add_sums(session.total, sums)
        clock.steps += 1
        if session.progress:
            mfu = self._mfu(phase, clock)
            used = f", MFU {mfu:.1%}" if mfu else ""
            tokens = clock.rate() * phase.tokens
            session.progress.update(1, f"loss {loss:.3f}, {tokens:,.0f} tokens/s{used}")

    def _report_and_save(
        self, state: TrainState, step: int, phase: Phase, session: "_Session", clock: "_Clock"
    ) -> None:
        """Writes a line, evaluates and saves a checkpoint, in this order, if they are due."""
        intervals, metrics_log = session.plan.intervals, session.metrics_log
        at_end = step == phase.last_step
        if step % intervals.log == 0 or at_end:
            if metrics_log:
                metrics_log.write(step, TRAIN, self._line(step, phase, session, clock))
            session.total = {}
            clock.restart()
        with clock.paused():
            if step % intervals.evaluate == 0 or at_end:
                judge = session.plan.judge
                held_out = self.evaluate(state, phase, intervals.eval_batches)
                judged = judge(state) if judge else {}
                for split, metrics in ((HELDOUT, held_out), (JUDGED, judged)):
                    if metrics_log and metrics:
                        metrics_log.write(step, split, metrics)
            if step % intervals.checkpoint == 0 or at_end or session.stopped:
                window = {name: list(pair) for name, pair in session.total.items()}
                metadata = {**session.plan.metadata, "step": step, "window": window}
                if metrics_log:
                    metrics_log.publish()
                session.checkpoints.save(step, state.checkpointables(), metadata)

    def _mfu(self, phase: Phase, clock: "_Clock") -> float | None:
        return self._peak and phase.flops * clock.rate() / self._peak

    def _line(
        self, step: int, phase: Phase, session: "_Session", clock: "_Clock"
    ) -> dict[str, float]:
        mfu = self._mfu(phase, clock)
        return {
            **means(session.total),
            "learning_rate": session.plan.schedule(step - 1),
            **session.plan.spent(step),
            "tokens_per_second": clock.rate() * phase.tokens,
            "host_wait": clock.host_wait(),
            **({"mfu": mfu} if mfu else {}),
        }


def last_line(step: int, window: Window) -> int:
    """The step of the last line on training before a checkpoint of `step` with that window."""
    return step - round(window["loss"][1]) if window else step


@dataclasses.dataclass
class _Session:
    """The values that one call of `train` keeps from step to step."""

    plan: RunPlan
    checkpoints: Checkpoints
    metrics_log: MetricsLog | None
    progress: Progress | None
    stopping: Callable[[int], bool]
    stopped: bool = False
    total: HostSums = dataclasses.field(default_factory=dict)  # since the last line

    def is_due(self, step: int, phase: Phase) -> bool:
        """Whether anything happens after this update."""
        intervals = self.plan.intervals
        every = (intervals.log, intervals.evaluate, intervals.checkpoint)
        return self.stopped or step == phase.last_step or any(step % n == 0 for n in every)


class _Clock:
    """Steps a second, and the share of time spent waiting for the host, since the last line."""

    def __init__(self, feed: Feed):
        self._feed = feed
        self.restart()

    def restart(self) -> None:
        self.steps = 0
        self._start, self._waited = time.perf_counter(), self._feed.waited

    def _elapsed(self) -> float:
        return max(time.perf_counter() - self._start, 1e-9)

    def rate(self) -> float:
        return self.steps / self._elapsed()

    def host_wait(self) -> float:
        return (self._feed.waited - self._waited) / self._elapsed()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the clock while the block runs."""
        begin, waited = time.perf_counter(), self._feed.waited
        yield
        self._start += time.perf_counter() - begin
        self._waited += self._feed.waited - waited


# The updates of this process. JAX stops all hosts at the greatest number of any host plus 1, so the
# numbers of one trial after another must not begin again.
_updates = itertools.count(1)


@contextlib.contextmanager
def _stop_signal() -> Iterator[Callable[[int], bool]]:
    """Yields `stopping(step)`: whether a signal has come; JAX lets all hosts agree on the step."""
    if jax.process_count() == 1:
        with catch_signals() as came:
            yield lambda step: came()
        return

    def stopping(step: int) -> bool:
        if came():
            signal.raise_signal(signal.SIGTERM)
        return multihost_utils.reached_preemption_sync_point(next(_updates))

    with catch_signals([number for number in STOPPING if number != signal.SIGTERM]) as came:
        yield stopping
