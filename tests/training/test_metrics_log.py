"""metrics.jsonl, TensorBoard events and the curve."""

import contextlib
import json
import logging
import struct
import threading

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from bertjax.base import figures
from bertjax.base.errors import InputError
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.training.health import HealthRules, PhaseSteps
from bertjax.training.metrics_log import HELDOUT, TRAIN, MetricsLog, read_metrics

pytestmark = pytest.mark.draws


def _events(folder) -> list[tuple[int, str, float]]:
    """Reads (step, tag, value) of all scalars, in the order in which they were written."""
    scalars = []
    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:  # TFRecord: length, its checksum, the record, its checksum
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            scalars += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
            data = data[16 + size :]
    return scalars


def _write(folder, step: int, lines) -> None:
    metrics_log = MetricsLog(folder, step)
    for line in lines:
        metrics_log.write(*line)
    metrics_log.close()


LINES = [
    (2, TRAIN, {"loss": 3.5, "learning_rate": 1e-4}),
    (4, TRAIN, {"loss": 0.1 + 0.2, "learning_rate": 2e-4}),
    (4, HELDOUT, {"loss": 2.75}),
    (6, TRAIN, {"loss": 1.25, "learning_rate": 1e-4}),
]
ROWS = [{"step": step, "split": split, **metrics} for step, split, metrics in LINES]


def test_lines_events_and_picture(tmp_path):
    _write(tmp_path, 0, LINES)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == ROWS
    assert read_metrics(tmp_path) == ROWS
    expected = [
        (step, f"{split}/{name}", float(np.float32(value)))
        for step, split, metrics in LINES
        for name, value in metrics.items()
    ]
    assert _events(tmp_path) == expected
    png = (tmp_path / "loss.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (960, 600)


def test_a_line_is_on_the_disk_as_soon_as_it_is_written(tmp_path):
    metrics_log = MetricsLog(tmp_path, 0)
    metrics_log.write(*LINES[0])
    assert read_metrics(tmp_path) == ROWS[:1]
    metrics_log.write(*LINES[2])
    assert (tmp_path / "loss.png").exists()
    metrics_log.close()


@pytest.mark.parametrize("step, kept", [(6, 4), (5, 3), (4, 3), (3, 1), (0, 0)])
def test_going_on_drops_the_lines_of_later_steps(tmp_path, step, kept):
    _write(tmp_path, 0, LINES)
    new = (7, TRAIN, {"loss": 0.5})
    _write(tmp_path, step, [new])
    assert read_metrics(tmp_path) == [*ROWS[:kept], {"step": 7, "split": TRAIN, "loss": 0.5}]


def test_a_last_line_cut_short_is_dropped(tmp_path):
    _write(tmp_path, 0, LINES)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert read_metrics(tmp_path) == ROWS[:3]
    _write(tmp_path, 6, [LINES[3]])
    assert read_metrics(tmp_path) == ROWS


DAMAGED = [
    b"",
    b"\x1f\x8b{]",
    b"\0" * 30,
    b'{"step": 4, "spl',
    b"[4, 2]",
    b"null",
    b'{"step": 4, "split": "tr\xff"}',
    b"[" * 100_000,
    b'{"split": "train", "loss": 1.0}',
    b'{"step": "4", "split": "train", "loss": 1.0}',
    b'{"step": 4, "loss": 1.0}',
    b'{"step": 4, "split": "train"}',
    b'{"step": 4, "split": "heldout", "loss": "low"}',
    b'{"step": 4, "split": "heldout", "loss": 1.0, "mlm_accuracy": []}',
]


def test_damaged_lines_are_set_aside_and_the_others_kept(tmp_path, caplog):
    path, whole = tmp_path / "metrics.jsonl", [json.dumps(row).encode() for row in ROWS]
    path.write_bytes(b"\n".join([*whole[:2], *DAMAGED, *whole[2:], b""]))
    assert read_metrics(tmp_path) == ROWS
    assert f"{path}: {len(DAMAGED)} damaged lines are left out" in caplog.text
    MetricsLog(tmp_path, 6).close()
    aside = tmp_path / "metrics.jsonl.damaged"
    assert aside.read_bytes().split(b"\n") == [*DAMAGED, b""]
    assert f"{path}: {len(DAMAGED)} damaged lines are set aside in {aside.name}" in caplog.text
    assert path.read_bytes().split(b"\n") == [*whole, b""]
    path.write_bytes(b"once more\n" + path.read_bytes())  # earlier damaged lines stay in their file
    MetricsLog(tmp_path, 6).close()
    assert aside.read_bytes().split(b"\n") == [*DAMAGED, b"once more", b""]
    assert read_metrics(tmp_path) == ROWS


@pytest.mark.parametrize("kept, end", [(4, 6), (3, 4), (1, 2), (0, 0), (None, 0)])
def test_lost_lines_are_reported(tmp_path, caplog, kept, end):
    """The file was cut, emptied or deleted, but a checkpoint has a later line."""
    path = tmp_path / "metrics.jsonl"
    if kept is not None:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:kept]))
    with caplog.at_level(logging.WARNING, "bertjax"):
        MetricsLog(tmp_path, 7, last_line=6).close()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (end < 6)
    for message in messages:
        assert message.startswith(f"{path} ends at step {end}, and the run goes on from step 7")
    assert read_metrics(tmp_path) == ROWS[: kept or 0]


def test_lines_without_a_checkpoint_are_reported(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    MetricsLog(tmp_path, 0).close()
    (record,) = caplog.records
    assert "has lines up to step 6, but no checkpoint exists: the run begins again" in caplog.text
    assert read_metrics(tmp_path) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "tensorboard").touch()
    with pytest.raises(InputError, match="tensorboard: a file, but a folder is needed"):
        MetricsLog(tmp_path, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_a_folder_in_the_place_of_the_picture(tmp_path):
    before = set(threading.enumerate())  # other tests may have left some
    metrics_log = MetricsLog(tmp_path, 0)
    metrics_log.write(1, TRAIN, {"loss": 1.0})
    (tmp_path / "loss.png").mkdir()
    with pytest.raises(IsADirectoryError):
        metrics_log.close()
    assert not set(threading.enumerate()) - before


def test_no_file_is_no_lines(tmp_path):
    assert read_metrics(tmp_path) == []


def test_nothing_written_draws_nothing(tmp_path):
    MetricsLog(tmp_path, 0).close()
    assert not (tmp_path / "loss.png").exists()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


# -------------------------------------------------------------------------- the health status on a
# run


HEALTH = HealthRules(MaskedLM(), (PhaseSteps(100, 100),), 0, 6.5)


def _held_out(step: int, loss: float):
    return step, HELDOUT, {"loss": loss + 0.7, "mlm_loss": loss, "mlm_accuracy": 0.3}


def _judged(folder, step: int, lines) -> str:
    metrics_log = MetricsLog(folder, step, health=HEALTH)
    for line in lines:
        metrics_log.write(*line)
    metrics_log.close()
    return metrics_log.status.name


def test_a_bad_verdict_is_told_once(tmp_path, caplog):
    """Also where the run stops and goes on, and where lines of later steps are dropped."""
    lines = [_held_out(step, loss) for step, loss in ((10, 4.2), (20, 4.9), (30, 4.8), (40, 4.9))]
    with caplog.at_level(logging.WARNING, "bertjax"):
        assert _judged(tmp_path, 0, lines[:3]) == "diverging"
        assert _judged(tmp_path, 30, lines[3:]) == "diverging"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "step 30: diverging: held-out mlm_loss 4.80 (unigram baseline 6.50), mlm_accuracy 30.0%"
    )
    caplog.clear()
    assert _judged(tmp_path, 25, lines[2:3]) == "diverging"  # the line at 30 is written again
    assert [record.getMessage()[:8] for record in caplog.records] == ["step 30:"]


def test_without_rules_there_is_no_verdict(tmp_path):
    metrics_log = MetricsLog(tmp_path, 0)
    metrics_log.write(*_held_out(10, 9.0))
    metrics_log.close()
    assert metrics_log.status is None


def _labels(folder, health, monkeypatch, more: float) -> list[str]:
    """The labels of what is drawn for a run whose loss is more than its main metric."""
    figure_of = figures.png
    found = []

    @contextlib.contextmanager
    def png(*arguments, **options):
        with figure_of(*arguments, **options) as figure:
            yield figure
            (plot,) = figure.axes
            found[:] = plot.get_legend_handles_labels()[1]

    monkeypatch.setattr(figures, "png", png)
    metrics_log = MetricsLog(folder, 0, health=health)
    metrics_log.write(1, HELDOUT, {"loss": 5.9 + more, "mlm_loss": 5.9})
    metrics_log.close()
    return found


def test_the_headline_is_drawn_with_its_baseline(tmp_path, monkeypatch):
    """It has its own curve where the loss is more."""
    names = ["train", "heldout", "heldout mlm_loss", "unigram baseline of mlm_loss"]
    assert _labels(tmp_path, HEALTH, monkeypatch, more=0.7) == names
    assert _labels(tmp_path, HEALTH, monkeypatch, more=0.0) == [*names[:2], names[3]]
    unknown = HealthRules(MaskedLM(), (PhaseSteps(100, 100),), 0, None)
    assert _labels(tmp_path, unknown, monkeypatch, more=0.7) == names[:3]
