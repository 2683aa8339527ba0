"""What a run tells: metrics as JSON lines and TensorBoard events, and its curve as a picture."""

import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bertjax import figures
from bertjax.buckets import in_bucket, path_of
from bertjax.files import atomic_write, check_folder_name, to_disk
from bertjax.json_kinds import parse, problem_in

TRAIN, HELDOUT = "train", "heldout"
METRICS_FILE = "metrics.jsonl"
DAMAGED_FILE = f"{METRICS_FILE}.damaged"  # lines that were set aside

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_COPIES = 30.0  # to a bucket; a long run has some megabytes


class Journal:
    """Writes the metrics of one run folder.

    A line is in the file at once, and on the disk, where a power cut leaves it, when `publish` is
    called: so no checkpoint outlives the lines before it.

    What a bucket gets is written on this machine, for nothing can be appended to an object, and
    copied whole: after an evaluation, at the end, when `publish` is called, and else with a line
    that comes 30 seconds after the last copy.

    Args:
      folder: where metrics.jsonl, tensorboard/ and loss.png are.
      step: the step that the run goes on from; lines of later steps, written by a run that
        was stopped before it could save them, are dropped.
      last_line: the step of the last line on training that must be there; where it is not, that
        is told.

    Raises:
      InputError: a file lies where tensorboard/ is to be.
    """

    def __init__(self, folder: Path, step: int, last_line: int = 0):
        from tensorboardX import SummaryWriter

        self._folder = self._local = folder
        if in_bucket(folder):
            self._temporary = tempfile.TemporaryDirectory(prefix="bertjax-")
            self._local = Path(self._temporary.name)
        check_folder_name(self._local / "tensorboard")
        rows, damaged = _read(folder)
        self._rows = [row for row in rows if row["step"] <= step]
        if damaged:
            _set_aside(folder, damaged)
        self._tell(step, last_line, max((row["step"] for row in rows), default=0))
        self._drawn = 0  # rows that the picture shows
        path = self._local / METRICS_FILE
        with atomic_write(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self._rows)
        self._file = open(path, "a", encoding="utf-8")
        self._events = SummaryWriter(str(self._local / "tensorboard"), purge_step=step + 1)
        self.publish()

    def _tell(self, step: int, last_line: int, last: int) -> None:
        """Says it where the lines that were found, up to step `last`, are not those expected."""
        path = self._folder / METRICS_FILE
        found = max((row["step"] for row in self._rows if row["split"] == TRAIN), default=0)
        if not step and last:
            _log.warning(
                "%s has lines up to step %d, and there is no checkpoint: the run begins again. If "
                "it had checkpoints, stop it now, and restore them from a copy with that file",
                *(path, last),
            )
        elif found < last_line:
            _log.warning(
                "%s ends at step %d, and the run goes on from step %d: the lines in between, up to "
                "step %d, are lost, but nothing else is",
                *(path, found, step, last_line),
            )

    def write(self, step: int, split: str, metrics: dict[str, float]) -> None:
        """One line: the step, the split ("train" or "heldout") and the metrics."""
        row = {"step": step, "split": split, **metrics}
        self._rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        for name, value in metrics.items():
            self._events.add_scalar(f"{split}/{name}", value, step)
        if split == HELDOUT:
            self.draw()
        if split == HELDOUT or time.monotonic() - self._published >= _SECONDS_BETWEEN_COPIES:
            self.publish()

    def publish(self) -> None:
        """Brings what is written to the disk for good, or to the bucket."""
        self._published = time.monotonic()
        if not in_bucket(self._folder):
            to_disk(self._file)
            return
        self._events.flush()
        for path in self._local.rglob("*"):
            if path.is_file():
                with atomic_write(self._folder / path.relative_to(self._local)) as file:
                    file.write(path.read_bytes())

    def draw(self) -> None:
        """loss.png: the loss on training batches and on held-out text, over steps."""
        with figures.png(self._local / "loss.png", figsize=(8, 5)) as figure:
            plot = figure.subplots()
            for split, style in ((TRAIN, dict(lw=1, alpha=0.6)), (HELDOUT, dict(lw=2, marker="."))):
                rows = [row for row in self._rows if row["split"] == split]
                steps, losses = [r["step"] for r in rows], [r["loss"] for r in rows]
                plot.plot(steps, losses, label=split, **style)
            plot.set(xlabel="step", ylabel="loss (nats)", title=self._folder.resolve().name)
            plot.grid(alpha=0.3)
            plot.legend()
        self._drawn = len(self._rows)

    def close(self) -> None:
        """Flushes everything."""
        if self._drawn < len(self._rows):
            self.draw()
        self._events.close()
        self.publish()
        self._file.close()
        if in_bucket(self._folder):
            self._temporary.cleanup()


def read_metrics(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; a last line that a crash cut short is left out.

    So are damaged ones, saying so.
    """
    rows, damaged = _read(folder)
    if damaged:
        path = path_of(folder) / METRICS_FILE
        _log.warning("%s: %d damaged lines are left out", path, len(damaged))
    return rows


def _read(folder: str | os.PathLike) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The lines that are whole, and those that are damaged."""
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
    """What a line says; None where it is damaged."""
    try:
        row = parse(line)
    except ValueError:
        return None
    if problem_in(row, {"step": int, "split": str}):
        return None
    drawn = row["split"] in (TRAIN, HELDOUT)
    return None if drawn and problem_in(row, {"loss": float}) else row


def _set_aside(folder: Path, damaged: list[bytes]) -> None:
    """Adds lines to DAMAGED_FILE, saying so."""
    path = folder / DAMAGED_FILE
    before = path.read_bytes() if path.exists() else b""
    with atomic_write(path) as file:
        file.write(before + b"".join(line + b"\n" for line in damaged))
    _log.warning(
        "%s: %d damaged lines are set aside in %s; the others are kept",
        *(folder / METRICS_FILE, len(damaged), path.name),
    )
