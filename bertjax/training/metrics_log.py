"""The records of a run: metrics as JSON lines and TensorBoard events, and a picture of the loss."""

import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bertjax.base import figures
from bertjax.base.cloud_storage import in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.base.figures import Curve, Level
from bertjax.base.files import atomic_write, check_folder_name, named, to_disk
from bertjax.base.validation import converted, parsed, record
from bertjax.training.health import HELDOUT, TRAIN, HealthRules, HealthStatus
from bertjax.training.trackers import Tracker

METRICS_FILE = "metrics.jsonl"
DAMAGED_FILE = f"{METRICS_FILE}.damaged"  # damaged lines are moved to this file
JUDGED = "dev"  # the split of metrics of a task, which have no loss
_ROW, _OF_BATCHES = record(step=int, split=str), record(loss=float)  # the types of lines
_NO_METRICS = ("step", "split", "trial")

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_COPIES = 30.0  # to a bucket; the file of a long run has a few megabytes


class MetricsLog:
    """Writes the metrics of one run folder.

    A line is in the file at once. `publish` brings it to the disk, where it survives a power cut;
    so a checkpoint never survives without the lines before it.

    For a bucket, the files are written on this machine, because nothing can be appended to an
    object. They are copied whole: after an evaluation, at the end, when `publish` is called, and
    with a line that comes 30 seconds or more after the last copy.

    Args:
      step: the step from which the run continues. Lines of later steps are dropped; they are of a
        run that was stopped before its next checkpoint.
      last_line: the step of the last training line that is expected; without it, a warning comes.
      health: the rules of the run. A bad health is logged after its
        evaluation, once for each kind.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        last_line: int = 0,
        health: HealthRules | None = None,
        tracker: Tracker | None = None,
    ):
        from tensorboardX import SummaryWriter

        self._folder = self._local = folder
        self._health, self._tracker = health, tracker
        if in_bucket(folder):
            self._temporary = tempfile.TemporaryDirectory(prefix="bertjax-")
            self._local = Path(self._temporary.name)
        check_folder_name(self._local / "tensorboard")
        rows, damaged = _read(folder)
        self._rows = [row for row in rows if row["step"] <= step]
        if damaged:
            _set_aside(folder, damaged)
        self._warn(step, last_line, max((row["step"] for row in rows), default=0))
        self._told = self._recorded_health()
        self._drawn = 0  # the number of rows in the picture
        path = self._local / METRICS_FILE
        with atomic_write(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self._rows)
        self._file = open(path, "a", encoding="utf-8")
        self._events = SummaryWriter(str(self._local / "tensorboard"), purge_step=step + 1)
        self.publish()

    def _warn(self, step: int, last_line: int, last: int) -> None:
        """Warns if the lines that were found, up to step `last`, are not the expected ones."""
        path = self._folder / METRICS_FILE
        found = max((row["step"] for row in self._rows if row["split"] == TRAIN), default=0)
        if not step and last:
            _log.warning(
                "%s has lines up to step %d, but no checkpoint exists: the run begins again. If "
                "it had checkpoints, stop it now, and restore them and that file from a copy",
                *(path, last),
            )
        elif found < last_line:
            _log.warning(
                "%s ends at step %d, and the run goes on from step %d: the lines in between, up to "
                "step %d, are lost, but nothing else is",
                *(path, found, step, last_line),
            )

    @property
    def status(self) -> HealthStatus | None:
        """The health of the run by all its lines."""
        return self._health.status(self._rows) if self._health else None

    def _recorded_health(self) -> set[str]:
        """The names of the health that came at the evaluations that are in the file."""
        if not self._health:
            return set()
        ends = [end for end, row in enumerate(self._rows, 1) if row["split"] == HELDOUT]
        return {self._health.status(self._rows[:end]).name for end in ends}

    def _warn_once(self, step: int) -> None:
        """Logs a bad health whose name has not come before."""
        status = self.status
        if status and status.is_bad and status.name not in self._told:
            _log.warning("step %d: %s", step, status)
            self._told.add(status.name)

    def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """Writes one line: the step, the split ("train" or "heldout") and the metrics."""
        row = {"step": step, "split": split, **metrics}
        self._rows.append(row)
        with named(self._local / METRICS_FILE):
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        by_split = {f"{split}/{name}": value for name, value in metrics.items()}
        for name, value in by_split.items():
            self._events.add_scalar(name, value, step)
        if self._tracker:
            self._tracker.log(step, by_split)
        if split == HELDOUT:
            self.draw()
            self._warn_once(step)
        if split == HELDOUT or time.monotonic() - self._published >= _SECONDS_BETWEEN_COPIES:
            self.publish()

    def publish(self) -> None:
        """Brings all lines to the disk, where they survive a power cut, or to the bucket."""
        self._published = time.monotonic()
        if not in_bucket(self._folder):
            with named(self._local / METRICS_FILE):
                to_disk(self._file)
            return
        self._events.flush()
        for path in self._local.rglob("*"):
            if path.is_file():
                with atomic_write(self._folder / path.relative_to(self._local)) as file:
                    file.write(path.read_bytes())

    def draw(self) -> None:
        """Draws loss.png: the loss on training batches and on held-out text, over steps."""
        train, held_out = ([r for r in self._rows if r["split"] == s] for s in (TRAIN, HELDOUT))
        curves, levels = [_curve(TRAIN, train, "loss"), _curve(HELDOUT, held_out, "loss")], []
        if self._health:
            name, baseline = self._health.objective.main_metric, self._health.unigram_baseline
            judged = [row for row in held_out if name in row]
            if any(row[name] != row["loss"] for row in judged):
                curves.append(_curve(f"{HELDOUT} {name}", judged, name))
            if judged and baseline is not None:
                levels.append(Level(f"unigram baseline of {name}", baseline))
        axes = dict(xlabel="step", ylabel="loss (nats)", title=self._folder.resolve().name)
        figures.draw(self._local / "loss.png", curves, levels, **axes)
        self._drawn = len(self._rows)

    def close(self) -> None:
        """Draws, publishes and closes the files."""
        self._events.close()  # first, because its thread must end even if nothing can be drawn
        if self._tracker:
            self._tracker.close()
        if self._drawn < len(self._rows):
            self.draw()
        self.publish()
        self._file.close()
        if in_bucket(self._folder):
            self._temporary.cleanup()


def _curve(label: str, rows: list[dict[str, Any]], name: str) -> Curve:
    return Curve.of(label, [(row["step"], row[name]) for row in rows])


def read_metrics(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, but for one cut short; a warning counts damaged ones."""
    rows, damaged = _read(folder)
    if damaged:
        path = path_of(folder) / METRICS_FILE
        _log.warning("%s: %d damaged lines are left out", path, len(damaged))
    return rows


def copy_lines(source: str | os.PathLike, folder: Path, step: int) -> None:
    """Gives a run that begins with another's checkpoint of `step` the other's lines up to it."""
    with atomic_write(folder / METRICS_FILE, "w") as file:
        file.writelines(
            json.dumps(row) + "\n" for row in read_metrics(source) if row["step"] <= step
        )


def _read(folder: str | os.PathLike) -> tuple[list[dict[str, Any]], list[bytes]]:
    path = path_of(folder) / METRICS_FILE
    if not path.exists():
        return [], []
    rows, damaged = [], []
    for line in path.read_bytes().split(b"\n")[:-1]:
        row = _row(line)
        if row is None:
            damaged.append(line)
        else:
            rows.append(row)
    return rows, damaged


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = parsed(line, _ROW, METRICS_FILE, "")
        if row["split"] in (TRAIN, HELDOUT):
            converted(row, _OF_BATCHES)
            converted({k: v for k, v in row.items() if k not in _NO_METRICS}, dict[str, float])
    except InputError:
        return None
    return row


def _set_aside(folder: Path, damaged: list[bytes]) -> None:
    """Moves damaged lines to DAMAGED_FILE, and prints a warning."""
    path = folder / DAMAGED_FILE
    before = path.read_bytes() if path.exists() else b""
    with atomic_write(path) as file:
        file.write(before + b"".join(line + b"\n" for line in damaged))
    _log.warning(
        "%s: %d damaged lines are set aside in %s; the others are kept",
        *(folder / METRICS_FILE, len(damaged), path.name),
    )
