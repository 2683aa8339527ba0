"""What a run tells: metrics as JSON lines and TensorBoard events, and its curve as a picture."""

import json
import os
from pathlib import Path
from typing import Any

from bertjax.files import atomic_write

TRAIN, HELDOUT = "train", "heldout"
METRICS_FILE = "metrics.jsonl"


class Journal:
    """Writes the metrics of one run folder.

    Args:
      folder: where metrics.jsonl, tensorboard/ and loss.png are.
      step: the step that the run goes on from; lines of later steps, written by a run that
        was stopped before it could save them, are dropped.
    """

    def __init__(self, folder: Path, step: int):
        from tensorboardX import SummaryWriter

        self._folder = folder
        self._path = folder / METRICS_FILE
        self._rows = [row for row in read_metrics(folder) if row["step"] <= step]
        with atomic_write(self._path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self._rows)
        self._file = open(self._path, "a", encoding="utf-8")
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

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

    def draw(self) -> None:
        """loss.png: the loss on training batches and on held-out text, over steps."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 5), layout="constrained")
        FigureCanvasAgg(figure)
        plot = figure.subplots()
        for split, style in ((TRAIN, dict(lw=1, alpha=0.6)), (HELDOUT, dict(lw=2, marker="."))):
            rows = [row for row in self._rows if row["split"] == split]
            plot.plot([r["step"] for r in rows], [r["loss"] for r in rows], label=split, **style)
        plot.set(xlabel="step", ylabel="loss (nats)", title=self._folder.resolve().name)
        plot.grid(alpha=0.3)
        plot.legend()
        with atomic_write(self._folder / "loss.png") as file:
            figure.savefig(file, format="png", dpi=120)

    def close(self) -> None:
        """Flushes everything."""
        if self._rows:
            self.draw()
        self._file.close()
        self._events.close()


def read_metrics(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl; a last line that a crash cut short is left out."""
    path = Path(folder) / METRICS_FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
