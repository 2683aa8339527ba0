"""What a run tells: metrics as JSON lines and TensorBoard events, and its curve as a picture."""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bertjax import figures
from bertjax.buckets import in_bucket, path_of
from bertjax.files import atomic_write

TRAIN, HELDOUT = "train", "heldout"
METRICS_FILE = "metrics.jsonl"

_SECONDS_BETWEEN_COPIES = 30.0  # to a bucket; a long run has some megabytes


class Journal:
    """Writes the metrics of one run folder.

    What a bucket gets is written on this machine, for nothing can be appended to an object, and
    copied whole: after an evaluation, at the end, when `publish` is called, and else with a line
    that comes 30 seconds after the last copy.

    Args:
      folder: where metrics.jsonl, tensorboard/ and loss.png are.
      step: the step that the run goes on from; lines of later steps, written by a run that
        was stopped before it could save them, are dropped.
    """

    def __init__(self, folder: Path, step: int):
        from tensorboardX import SummaryWriter

        self._folder = self._local = folder
        if in_bucket(folder):
            self._temporary = tempfile.TemporaryDirectory(prefix="bertjax-")
            self._local = Path(self._temporary.name)
        self._rows = [row for row in read_metrics(folder) if row["step"] <= step]
        self._drawn = 0  # rows that the picture shows
        path = self._local / METRICS_FILE
        with atomic_write(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self._rows)
        self._file = open(path, "a", encoding="utf-8")
        self._events = SummaryWriter(str(self._local / "tensorboard"), purge_step=step + 1)
        self.publish()

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
        """Copies to a run in a bucket what it has not got yet; others have it already."""
        self._published = time.monotonic()
        if not in_bucket(self._folder):
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
        self._file.close()
        self._events.close()
        self.publish()
        if in_bucket(self._folder):
            self._temporary.cleanup()


def read_metrics(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; a last line that a crash cut short is left out."""
    path = path_of(folder) / METRICS_FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
