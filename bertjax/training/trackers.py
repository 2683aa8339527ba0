"""Metrics on an experiment tracker, next to the run's folder: Weights & Biases, MLflow, trackio."""

import importlib.util
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bertjax.base.checks import check_choice
from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.base.files import read_json, write_json
from bertjax.base.validation import record

TRACKER_FILE = "tracker.json"
_PROJECT = "bertjax"  # unless the tracker's own variable names another

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A run on a tracker; `identity` is its name there, by which it goes on."""

    identity: str

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Sends the metrics of a step."""

    def close(self) -> None:
        """Sends what is left."""


class _Wandb:
    def __init__(self, name: str, known: str | None, config: Mapping[str, Any]):
        import wandb

        self.identity = known or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            id=self.identity,
            name=name,
            config=dict(config),
            resume="allow",
        )

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log(metrics, step=step)

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    def __init__(self, name: str, known: str | None, config: Mapping[str, Any]):
        import mlflow

        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT))
        run = mlflow.start_run(run_id=known, run_name=None if known else name)
        self.identity, self._library = run.info.run_id, mlflow
        if not known:
            mlflow.log_params(dict(config))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._library.log_metrics(metrics, step=step)

    def close(self) -> None:
        self._library.end_run()


class _Trackio:
    def __init__(self, name: str, known: str | None, config: Mapping[str, Any]):
        import trackio

        self.identity, self._library = known or f"{name}-{secrets.token_hex(3)}", trackio
        project = os.environ.get("TRACKIO_PROJECT", _PROJECT)
        trackio.init(project=project, name=self.identity, config=dict(config), resume="allow")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._library.log(metrics, step=step)

    def close(self) -> None:
        self._library.finish()


_TRACKERS: dict[str, Callable[[str, str | None, Mapping[str, Any]], Tracker]]
_TRACKERS = {"wandb": _Wandb, "mlflow": _Mlflow, "trackio": _Trackio}


def check_tracker(name: str) -> None:
    """Raises InputError if there is no such tracker, or its package is not installed."""
    check_choice("config.tracker", name, ("", *_TRACKERS))
    if name and importlib.util.find_spec(name) is None:
        raise InputError(f"config.tracker={name}: is not installed: {install(name)}")


def open_tracker(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker | None:
    """The tracker's run of the run in a folder, which goes on if it had one before.

    `name` is `wandb`, `mlflow`, `trackio`, or "" for none. The folder gets TRACKER_FILE.
    """
    if not name:
        return None
    path, known = folder / TRACKER_FILE, None
    if path.exists():
        saved = read_json(path, record(tracker=str, id=str), hint="remove it")
        known = saved["id"] if saved["tracker"] == name else None
    tracker = _Careful(_TRACKERS[name](folder.name, known, config), name)
    write_json(path, {"tracker": name, "id": tracker.identity})
    return tracker


class _Careful:
    """A tracker whose failure does not end the run: metrics.jsonl has all that it gets."""

    def __init__(self, tracker: Tracker, name: str):
        self.identity, self._name = tracker.identity, name
        self._tracker: Tracker | None = tracker

    def log(self, step: int, metrics: dict[str, float]) -> None:
        if self._tracker is not None:
            try:
                self._tracker.log(step, metrics)
            except Exception as error:  # whatever a library or its server raises
                self._tracker = None
                _log.warning(
                    "step %d: %s failed and gets no more metrics: %s: metrics.jsonl has them all",
                    *(step, self._name, error),
                )

    def close(self) -> None:
        if self._tracker is not None:
            self._tracker.close()
