"""One training in one folder: of pre-training, of a trial of fine-tuning, or contrastive."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertjax.runs.read import flat
from bertjax.runs.run_folder import checkpoints_of
from bertjax.training.health import HealthRules
from bertjax.training.loop import RunPlan, Trainer, Window, last_line
from bertjax.training.metrics_log import MetricsLog
from bertjax.training.sharding.hosts import host_index, raise_together
from bertjax.training.state import TrainState
from bertjax.training.trackers import open_tracker


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, which begins or goes on in its folder, on all hosts.

    Attributes:
      trainer: its experiment and compiled programs; several runs may share it.
      folder: gets checkpoints/, metrics.jsonl, loss.png and tensorboard/.
      begin: makes the first state, and its window, if there is no checkpoint.
      ready: called on all hosts with the state, before the first host writes anything.
      write: called on the first host with the state, before it opens metrics.jsonl.
      health: judges the lines of metrics; only on the first host.
    """

    trainer: Trainer
    plan: RunPlan
    folder: Path
    begin: Callable[[], tuple[TrainState, Window]]
    config: Mapping[str, Any]
    tracker: str = ""
    keep: int = 1
    keep_every: int = 0
    ready: Callable[[TrainState], None] = lambda state: None
    write: Callable[[TrainState], None] = lambda state: None
    health: HealthRules | None = None

    def train(self) -> tuple[TrainState, bool]:
        """Trains from the newest checkpoint, or from the beginning, as `Trainer.train`.

        Raises InputError if the run was started on other data, or a host cannot write its files.
        """
        with contextlib.ExitStack() as stack:
            checkpoints = checkpoints_of(self.folder, keep=self.keep, keep_every=self.keep_every)
            stack.enter_context(contextlib.closing(checkpoints))
            state, window = self.trainer.restore(checkpoints, self.plan.metadata["data"])
            if state is None:
                state, window = self.begin()
            self.ready(state)
            metrics_log = None
            with raise_together():
                if host_index() == 0:
                    self.write(state)
                    step = int(state.step)
                    tracker = open_tracker(self.tracker, self.folder, flat(self.config))
                    last = last_line(step, window)
                    metrics_log = MetricsLog(self.folder, step, last, self.health, tracker)
                    stack.enter_context(contextlib.closing(metrics_log))
            return self.trainer.train(state, self.plan, checkpoints, metrics_log, window)
