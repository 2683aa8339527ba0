"""Trackers of experiments: what they get, that a run goes on there, and what is refused."""

import json
import logging
import sys
import types

import pytest

from bertjax.base.errors import InputError
from bertjax.training.health import HELDOUT, TRAIN
from bertjax.training.metrics_log import MetricsLog
from bertjax.training.trackers import check_tracker, open_tracker

CONFIG = {"model.size": "tiny", "seed": 7}


class Library(types.ModuleType):
    """Stands for each of the three packages, by the functions that are called; keeps the calls."""

    def __init__(self, name):
        super().__init__(name)
        self.calls: list[tuple] = []
        self.lines: list[tuple[int, dict]] = []

    def init(self, **settings):
        self.calls.append(("init", settings))
        return self

    def log(self, metrics, step):
        if "train/broken" in metrics:
            raise ConnectionError("no answer")
        self.lines.append((step, metrics))

    log_metrics = log

    def finish(self):
        self.calls.append(("finish",))

    end_run = finish

    def set_experiment(self, name):
        self.calls.append(("experiment", name))

    def start_run(self, run_id, run_name):
        self.calls.append(("start", run_id, run_name))
        info = types.SimpleNamespace(run_id=run_id or "of-mlflow")
        return types.SimpleNamespace(info=info)

    def log_params(self, config):
        self.calls.append(("params", config))


@pytest.fixture(params=["wandb", "mlflow", "trackio"])
def library(request, monkeypatch):
    module = Library(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


def _run(library, folder, first):
    tracker = open_tracker(library.__name__, folder, CONFIG)
    metrics_log = MetricsLog(folder, first - 1, tracker=tracker)
    metrics_log.write(first, TRAIN, {"loss": 2.5, "rate": 0.5})
    metrics_log.write(first, HELDOUT, {"loss": 2.0})
    metrics_log.close()


def test_it_gets_every_line_and_goes_on(library, tmp_path):
    folder = tmp_path / "moo"
    folder.mkdir()
    _run(library, folder, 1)
    identity = json.loads((folder / "tracker.json").read_text())["id"]
    _run(library, folder, 2)
    assert library.lines == [
        line
        for step in (1, 2)
        for line in [
            (step, {"train/loss": 2.5, "train/rate": 0.5}),
            (step, {"heldout/loss": 2.0}),
        ]
    ]
    assert library.calls.count(("finish",)) == 2
    if library.__name__ == "mlflow":
        starts = [call for call in library.calls if call[0] == "start"]
        assert starts == [("start", None, "moo"), ("start", identity, None)]
        assert [call for call in library.calls if call[0] == "params"] == [("params", CONFIG)]
    else:
        started = [call[1] for call in library.calls if call[0] == "init"]
        key = "id" if library.__name__ == "wandb" else "name"
        assert [each[key] for each in started] == [identity, identity]
        assert started[0]["config"] == CONFIG and started[1]["resume"] == "allow"


def test_its_failure_does_not_end_the_run(library, tmp_path, caplog):
    metrics_log = MetricsLog(tmp_path, 0, tracker=open_tracker(library.__name__, tmp_path, CONFIG))
    with caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            metrics_log.write(step, TRAIN, {"loss": 1.0} | ({"broken": 1.0} if step == 2 else {}))
    metrics_log.close()
    (warning,) = caplog.records
    assert "step 2" in warning.getMessage() and "no answer" in warning.getMessage()
    assert [step for step, _ in library.lines] == [1]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_another_tracker_begins_anew(monkeypatch, tmp_path):
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, Library(name))
        open_tracker(name, tmp_path, CONFIG)
        saved = json.loads((tmp_path / "tracker.json").read_text())
        assert saved["tracker"] == name
    (init,) = sys.modules["trackio"].calls
    assert init[1]["name"] == saved["id"] and saved["id"].startswith(tmp_path.name)


def test_what_is_refused(monkeypatch):
    check_tracker("")
    with pytest.raises(InputError, match="config.tracker='w&b': must be one of '', wandb, mlflow"):
        check_tracker("w&b")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed: pip install -e '\.\[mlflow\]'"):
        check_tracker("mlflow")
