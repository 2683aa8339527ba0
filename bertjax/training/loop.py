"""The training loop: phases of steps, with evaluation, checkpoints, and a way to stop and go on."""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import optax
from jax.experimental import multihost_utils

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.progress import Progress
from bertjax.base.signals import STOPPING, taken
from bertjax.sharding.placement import HostBatch, Placement
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.compiled_step import CompiledStep
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.feed import Feed
from bertjax.training.hardware import peak_flops
from bertjax.training.journal import HELDOUT, TRAIN, Journal
from bertjax.training.state import TrainState
from bertjax.training.step import Batch, LossFunction, Sums, add_sums, means


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of steps with one kind of batches.

    Attributes:
      name: for messages.
      first_step, last_step: updates first_step + 1 to last_step are made in this phase.
      parts: step within the phase -> the parts of the batch: each gives, on the host, those of its
        rows that are asked for. There is one part, or each has a shape of its own.
      held_out: what it is evaluated on while it trains; None: nothing.
      rows: of each part, over all hosts.
      accumulate: equal parts that a batch of one part is computed in, to save memory.
      tokens: positions of a training batch, padding included; their mean where lengths differ.
      flops: useful operations of one update; as the tokens.
      loss: what is minimized, where it is not the trainer's: the same parameters, computed with in
        another way.
    """

    name: str
    first_step: int
    last_step: int
    parts: Callable[[int], Sequence[Callable[[slice], HostBatch]]]
    held_out: HeldOut | None
    rows: int
    accumulate: int
    tokens: int
    flops: float
    loss: LossFunction | None = None


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How often, in steps; and how much held-out text is read each time."""

    log: int
    evaluate: int
    checkpoint: int
    eval_batches: int

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) >= 1:
                raise ValueError(f"{field.name}={getattr(self, field.name)}: must be at least 1")


class Trainer:
    """One loss function, one optimizer, one placement: all that is compiled, for any run with them.

    Args:
      loss, optimizer: see `bertjax.training.step.train_step`; a phase may have another loss.
      placement: where everything lies.
      weights: of `bertjax.training.state.weights_in_use`.
    """

    def __init__(
        self,
        *,
        loss: LossFunction,
        optimizer: optax.GradientTransformation,
        placement: Placement,
        weights: Any,
    ):
        self._weights = weights
        self._loss, self._optimizer, self._placement = loss, optimizer, placement
        # By the identity of the loss, which what is compiled keeps alive.
        self._evaluators: dict[int, Evaluator] = {}
        self._steps: dict[tuple[int, int], CompiledStep] = {}
        self._compiled: set[tuple[int, str]] = set()  # the losses and phases that were told
        mesh = placement.mesh
        peak = peak_flops(mesh.devices.flat[0].device_kind)
        self._peak = peak and peak * mesh.size

    def step(
        self, abstract: TrainState, accumulate: int, loss: LossFunction | None = None
    ) -> CompiledStep:
        """The update, for a state of these shapes and shardings; `loss` is a phase's own."""
        loss = loss or self._loss
        key = id(loss), accumulate
        if key not in self._steps:
            self._steps[key] = CompiledStep(
                loss, self._optimizer, self._placement, self._weights, abstract, accumulate
            )
        return self._steps[key]

    def lowered_step(
        self,
        abstract: TrainState,
        batch: Any,
        accumulate: int,
        loss: LossFunction | None = None,
    ) -> jax.stages.Lowered:
        """The same for devices that are only described.

        Args:
          batch: shapes and dtypes of the batch's arrays.
        """
        with self._placement.active():
            return self.step(abstract, accumulate, loss).lower(abstract, batch)

    def update(
        self,
        state: TrainState,
        parts: Sequence[Batch],
        accumulate: int,
        seed: int,
        loss: LossFunction | None = None,
    ) -> tuple[TrainState, Sums]:
        """One update with a batch as `put` gives it; the state is donated."""
        with self._placement.active():
            return self.step(state, accumulate, loss)(state, parts, seed)

    def _evaluate(self, state: TrainState, phase: Phase, batches: int) -> dict[str, float]:
        loss = phase.loss or self._loss
        if id(loss) not in self._evaluators:
            self._evaluators[id(loss)] = Evaluator(loss, self._placement)
        used = jax.tree.map(lambda leaf: leaf.sharding, self._weights)
        params = jax.device_put(state.evaluated(), used)  # once for all batches
        return self._evaluators[id(loss)].evaluate(params, phase.held_out, batches)

    def put(self, phase: Phase, number: int) -> list[Batch]:
        """The parts of batch `number` of a phase, on the devices."""
        return [self._placement.put(part, phase.rows) for part in phase.parts(number)]

    def check(self, phases: list[Phase]) -> None:
        """Checks, before the compilation, that all phases' batches divide over the devices."""
        for phase in phases:
            self._placement.host_rows(phase.rows // phase.accumulate)
            if phase.held_out:
                self._placement.host_rows(phase.held_out.batch_size)

    def dry_run(
        self, state: TrainState, phases: list[Phase], seed: int
    ) -> dict[str, dict[str, float]]:
        """One update and one evaluation of every phase: what each gives."""
        results = {}
        for phase in phases:
            state, sums = self.update(state, self.put(phase, 0), phase.accumulate, seed, phase.loss)
            held_out = self._evaluate(state, phase, 1)
            results[phase.name] = {"train": means(sums), "heldout": held_out}
        return results

    def train(
        self,
        state: TrainState,
        phases: list[Phase],
        intervals: Intervals,
        checkpoints: Checkpoints,
        journal: Journal | None,
        metadata: dict[str, Any],
        window: dict[str, Any],
        *,
        schedule: optax.Schedule,
        seed: int,
    ) -> tuple[TrainState, bool]:
        """Runs every phase from where `state` stands.

        The order of effects after an update: metrics are read, a line is written, held-out text
        is evaluated, the state is saved. So what is saved never lacks what was written, and a
        loss that is not finite is never saved.

        Args:
          journal: None on processes other than the first.
          metadata: saved with every checkpoint.
          window: metrics since the last line, as an earlier run saved them; {} at first.
          schedule: update count -> learning rate, for the journal.
          seed: see `bertjax.training.step.train_step`.

        Returns:
          The last state, and False if a signal to stop came, be it at the very end; the state
          is saved in any case.

        Raises:
          NonFiniteLoss: with the step and the batch's identity.
        """
        last = phases[-1].last_step
        step = int(state.step)
        progress = Progress("training", last, " steps", initial=step) if journal else None
        with _stop_signal() as stopping:
            session = _Session(
                intervals, checkpoints, journal, progress, metadata, stopping, schedule, seed
            )
            session.total = {name: tuple(pair) for name, pair in window.items()}
            for phase in phases:
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
            busy=lambda: unread is not None and not unread["loss"][0].is_ready(),
        )
        clock = _Clock(feed)
        for number, parts in feed:
            first = number == numbers.start
            with self._compiling(phase, session, clock) if first else contextlib.nullcontext():
                state, sums = self.update(state, parts, phase.accumulate, session.seed, phase.loss)
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

    @contextlib.contextmanager
    def _compiling(self, phase: Phase, session: "_Session", clock: "_Clock") -> Iterator[None]:
        """Stops the clock, and says how long the block takes, once for what is compiled."""
        compiled = id(phase.loss or self._loss), phase.name
        told = session.progress if compiled not in self._compiled else None
        self._compiled.add(compiled)
        begin = time.perf_counter()
        if told:
            told.say(f"{phase.name}: compiling the step")
        with clock.paused():
            yield
        if told:
            told.say(f"{phase.name}: compiled in {time.perf_counter() - begin:.0f} s")

    def _read(
        self, sums: Sums, step: int, phase: Phase, session: "_Session", clock: "_Clock"
    ) -> None:
        """Takes the sums of one update from the devices into the session's."""
        sums = jax.device_get(sums)
        loss, norm = means(sums)["loss"], means(sums)["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NonFiniteLoss(
                f"step {step}: the loss is {loss}, the gradient's norm {norm}; the batch is "
                f"number {step - 1 - phase.first_step} of {phase.name}, seed {session.seed}. Lower "
                "the learning rate or lengthen the warm-up; the last checkpoint is whole."
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
        """A line, an evaluation, a checkpoint: whichever are due, in this order."""
        intervals, journal = session.intervals, session.journal
        at_end = step == phase.last_step
        if step % intervals.log == 0 or at_end:
            if journal:
                journal.write(step, TRAIN, self._line(step, phase, session, clock))
            session.total = {}
            clock.restart()
        with clock.paused():
            if phase.held_out and (step % intervals.evaluate == 0 or at_end):
                metrics = self._evaluate(state, phase, intervals.eval_batches)
                if journal:
                    journal.write(step, HELDOUT, metrics)
            if step % intervals.checkpoint == 0 or at_end or session.stopped:
                window = {name: list(pair) for name, pair in session.total.items()}
                metadata = session.metadata | {"step": step, "window": window}
                if journal:
                    journal.publish()
                session.checkpoints.save(step, state.parts(), metadata)

    def _mfu(self, phase: Phase, clock: "_Clock") -> float | None:
        return self._peak and phase.flops * clock.rate() / self._peak

    def _line(
        self, step: int, phase: Phase, session: "_Session", clock: "_Clock"
    ) -> dict[str, float]:
        mfu = self._mfu(phase, clock)
        return {
            **means(session.total),
            "learning_rate": float(session.schedule(step - 1)),
            "tokens_per_second": clock.rate() * phase.tokens,
            "host_wait": clock.host_wait(),
            **({"mfu": mfu} if mfu else {}),
        }


def last_line(step: int, window: Mapping[str, Any]) -> int:
    """The step of the last line on training before a checkpoint of `step` with that window."""
    return step - round(window["loss"][1]) if window else step


def restore(
    checkpoints: Checkpoints, abstract: TrainState, data: dict[str, str], step: int | None = None
) -> tuple[TrainState | None, dict[str, Any]]:
    """The state that a run goes on from (None: it has not begun), and the window of `train`.

    Args:
      data: the identity of what it is trained on, as in `train`'s metadata under "data".
      step: of the checkpoint; None: the newest whole one.

    Raises:
      InputError: it was begun on other data; or no checkpoint of the step is whole.
    """
    restored = checkpoints.restore(abstract.parts(), step)
    if restored is None:
        return None, {}
    parts, metadata = restored
    if metadata["data"] != data:
        raise InputError(
            "the run was begun on other data than the config names now: give it what it was "
            "begun with, or choose another --workdir"
        )
    state = TrainState.from_parts(parts)
    if jax.process_index() == 0:
        print(f"going on from step {int(state.step)}", flush=True)
    return state, metadata["window"]


@dataclasses.dataclass
class _Session:
    """The values that one call of `train` keeps from step to step."""

    intervals: Intervals
    checkpoints: Checkpoints
    journal: Journal | None
    progress: Progress | None
    metadata: dict[str, Any]
    stopping: Callable[[int], bool]
    schedule: optax.Schedule
    seed: int
    stopped: bool = False
    total: Sums = dataclasses.field(default_factory=dict)  # since the last line

    def is_due(self, step: int, phase: Phase) -> bool:
        """Whether anything happens after this update."""
        every = (self.intervals.log, self.intervals.evaluate, self.intervals.checkpoint)
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


@contextlib.contextmanager
def _stop_signal() -> Iterator[Callable[[int], bool]]:
    """Yields `stopping(step)`: whether a signal to stop has come (`bertjax.base.signals.taken`).

    In a job of several processes JAX itself watches for SIGTERM on every host, and lets all of
    them agree on the step to stop at; other signals that come to one host are handed on as that.
    """
    if jax.process_count() == 1:
        with taken() as came:
            yield lambda step: came()
        return

    def stopping(step: int) -> bool:
        if came():
            signal.raise_signal(signal.SIGTERM)
        return multihost_utils.reached_preemption_sync_point(step)

    with taken([number for number in STOPPING if number != signal.SIGTERM]) as came:
        yield stopping
