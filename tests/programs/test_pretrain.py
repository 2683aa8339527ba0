"""Complete pre-training runs, on a language that a tiny model learns in seconds."""

import json
import os
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.models.encoders.presets import BertSpec
from bertjax.programs import evaluate, pretrain
from bertjax.runs.run_folder import read_config
from bertjax.runs.source import load_run
from bertjax.training.loop import Trainer
from bertjax.training.metrics_log import MetricsLog
from tests.helpers.closeness import assert_close
from tests.helpers.patience import PATIENCE
from tests.helpers.slow_cases import others_slow
from tests.helpers.tiny_run import ONE_LENGTH, metrics_of, rows_of, start_pretraining, tiny_config


def steps_of(run, split):
    return [row["step"] for row in rows_of(run, split)]


def assert_same_run(one, two, **tolerance):
    """Asserts equal metrics and parameters; without a tolerance, they must be equal bit by bit."""
    metrics, parameters = [metrics_of(run) for run in (one, two)], []
    for run in (one, two):
        loaded = load_run(run)
        parameters.append(jax.device_get(loaded.params))
    if not tolerance:
        assert metrics[0] == metrics[1]
        jax.tree.map(np.testing.assert_array_equal, *parameters)
        return
    for row, other in zip(*metrics, strict=True):
        assert row.keys() == other.keys()
        assert (row["step"], row["split"]) == (other["step"], other["split"])
        for name in row.keys() - {"step", "split"}:
            assert row[name] == pytest.approx(other[name], **tolerance), (row["step"], name)


@pytest.fixture(scope="session")
def uninterrupted(tiny_corpus, pretrained_once):
    """A run of 12 steps with dropout, which tests copy."""
    return pretrained_once("uninterrupted", tiny_config(tiny_corpus))


def test_a_device_that_is_full_leaves_the_last_checkpoint(tiny_corpus, tmp_path, monkeypatch):
    """The memory runs out in the evaluation of step 6, after the checkpoint of step 5."""
    config, folder = tiny_config(tiny_corpus, **ONE_LENGTH), tmp_path / "run"
    monkeypatch.setattr(Trainer, "evaluate", lambda *_: jax.numpy.zeros((2**45,), "int8"))
    with pytest.raises(InputError) as raised:
        pretrain.run(config, str(folder))
    assert str(raised.value) == (
        "cpu is out of memory (32,768.00 GiB more were asked for): in this order, "
        "set --config.phase_N.accumulate=2 (then 4, and so on) in the phase N that it stopped in, "
        "lower --config.eval_batch_size, set --config.model.remat=layer, "
        "end other programs that use the device"
    )
    assert load_run(folder).step == 5


def test_the_run_folder(tiny_run, tiny_corpus):
    names = {path.name for path in tiny_run.iterdir()}
    assert names >= {"config.json", "metrics.jsonl", "loss.png", "checkpoints", "tensorboard"}
    assert names >= {"vocab.txt", "vocabulary.json"} and "tokenizer.json" not in names
    assert (tiny_run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((tiny_run / "tensorboard").glob("events.*"))
    assert (tiny_run / "vocab.txt").read_bytes() == (tiny_corpus / "vocab.txt").read_bytes()
    assert read_config(tiny_run)["phase_2"]["length"] == 64
    # keep_checkpoints = 2: the last checkpoint and the one before.
    assert sorted(int(p.name) for p in (tiny_run / "checkpoints").iterdir()) == [150, 160]


def test_the_metrics(tiny_run):
    lines = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in lines] == sorted(row["step"] for row in lines)
    # A line comes at every interval and at the end of each phase.
    assert steps_of(tiny_run, "train") == list(range(10, 161, 10))
    assert steps_of(tiny_run, "heldout") == [60, 120, 160]
    losses = {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    for row in lines:
        assert losses <= row.keys()
        assert row["loss"] == pytest.approx(row["mlm_loss"] + row["nsp_loss"], rel=0.02)
        assert all(np.isfinite(value) for key, value in row.items() if key != "split")
        assert 0 <= row["mlm_accuracy"] <= 1 and 0 <= row["nsp_accuracy"] <= 1
        if row["split"] == "train":
            assert row["tokens_per_second"] > 0 and 0 <= row["host_wait"] <= 1
            first, second = min(row["step"], 120), max(row["step"] - 120, 0)
            assert row["tokens"] == first * 16 * 32 + second * 8 * 64
        else:
            assert row["mlm_perplexity"] == pytest.approx(np.exp(row["mlm_loss"]))


def test_it_learns(tiny_run):
    """The language is easy: 0.85 of the masked tokens can be predicted, and most labels."""
    first, last = rows_of(tiny_run, "train")[0], rows_of(tiny_run, "heldout")[-1]
    assert first["mlm_loss"] > 2.5
    assert last["mlm_loss"] < 0.8 and last["mlm_accuracy"] > 0.75
    assert last["nsp_loss"] < np.log(2) and last["nsp_accuracy"] > 0.55


def test_the_learning_rate_goes_up_and_down(tiny_run):
    rates = {row["step"]: row["learning_rate"] for row in rows_of(tiny_run, "train")}
    # The rate of a line's last update, counted from 0, with 16 steps of warm-up and 160 in all.
    for step, rate in rates.items():
        done = step - 1
        assert_close(rate, 1e-2 * min(step / 16, (160 - done) / 144, 1), size=1e-2)


def test_both_phases_have_their_share(uninterrupted):
    """9 of 12 steps at S=32; lines and evaluations at the ends of both phases."""
    assert steps_of(uninterrupted, "train") == [2, 4, 6, 8, 9, 10, 12]
    assert steps_of(uninterrupted, "heldout") == [6, 9, 12]


def test_a_finished_run_again(tiny_run, tmp_path, capsys):
    """If config.json is lost, it is written again from the checkpoints."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("config.json"))
    assert load_run(run).tokenizer.identity == load_run(tiny_run).tokenizer.identity
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}
    lines = (run / "metrics.jsonl").read_text()
    assert pretrain.run(read_config(run), str(run)) == 0
    for name in ("config.json", "vocabulary.json"):
        assert (run / name).read_bytes() == (tiny_run / name).read_bytes()
    assert (run / "metrics.jsonl").read_text() == lines
    after = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").rglob("*")}
    assert after == before
    output = capsys.readouterr().out
    assert "going on from step 160" in output and "160 steps done" in output


def test_dry_run_writes_nothing(tiny_corpus, tmp_path, capsys):
    config = tiny_config(tiny_corpus, dry_run=True)
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert not list(tmp_path.iterdir())
    output = capsys.readouterr().out
    start, end = output.index("{"), output.rindex("}") + 1
    results = json.loads(output[start:end])
    assert results.keys() == {"phase 1", "phase 2"}
    for phase in results.values():
        assert np.isfinite(phase["train"]["loss"]) and np.isfinite(phase["heldout"]["loss"])
    assert "dry run" in output and "nothing was written" in output


@pytest.mark.parametrize("step", others_slow([3, 9], 9))
def test_a_signal_stops_the_run_and_it_goes_on_exactly(
    tiny_corpus, uninterrupted, tmp_path, monkeypatch, capsys, step
):
    """The signal comes between two lines of metrics, and near the end of the first phase."""
    run, config = tmp_path / "run", tiny_config(tiny_corpus)
    real = MetricsLog.write

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        if split == "train" and at == step - step % 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write)
        assert pretrain.run(config, str(run)) == pretrain.EXIT_STOPPED == 75
    assert "stopped at step" in capsys.readouterr().out
    stopped = load_run(run).step
    assert step - 1 <= stopped <= step + 1 < 12
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert pretrain.run(config, str(run)) == 0
    assert f"going on from step {stopped}" in capsys.readouterr().out
    assert_same_run(run, uninterrupted)


@pytest.mark.slow
def test_a_run_without_its_first_checkpoint_begins_again(
    tiny_corpus, uninterrupted, tmp_path, caplog
):
    """The run was killed before its first checkpoint, so it has only lines of metrics."""
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run, ignore=shutil.ignore_patterns("checkpoints"))
    assert pretrain.run(tiny_config(tiny_corpus), str(run)) == 0
    assert "has lines up to step 12, but no checkpoint exists: the run begins" in caplog.text
    assert_same_run(run, uninterrupted)


def test_a_damaged_checkpoint_is_passed_over(tiny_corpus, uninterrupted, tmp_path, caplog):
    run = tmp_path / "run"
    shutil.copytree(uninterrupted, run)
    shutil.rmtree(run / "checkpoints" / "12" / "optimizer")
    assert pretrain.run(tiny_config(tiny_corpus), str(run)) == 0
    assert f"checkpoint {run / 'checkpoints' / '12'} is damaged" in caplog.text
    assert_same_run(run, uninterrupted)


def test_left_to_right(left_to_right_run):
    """Each word determines the next one, so half of the tokens can be predicted."""
    rows = metrics_of(left_to_right_run)
    assert all("nsp_loss" not in row for row in rows)
    assert rows[-1]["split"] == "heldout"
    assert rows[-1]["mlm_loss"] < rows[0]["mlm_loss"] - 0.7
    assert rows[-1]["mlm_accuracy"] > 0.4


@pytest.mark.slow
def test_accumulation_is_the_whole_batch(tiny_corpus, tmp_path):
    """Without dropout, two halves give the same as the whole batch, except for rounding."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for accumulate in (1, 2):
        phases = {"phase_1": {"share": 1.0, "accumulate": accumulate}, "phase_2": {"share": 0.0}}
        config = tiny_config(tiny_corpus, model=no_dropout, **phases)
        assert pretrain.run(config, str(tmp_path / str(accumulate))) == 0
    assert_same_run(tmp_path / "1", tmp_path / "2", rel=2e-3)


def test_where_it_runs_may_change(tiny_corpus, uninterrupted, tmp_path, capsys):
    """The run is the same with a moved corpus, and another layout, attention and retention."""
    run, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(uninterrupted, run)
    shutil.copytree(tiny_corpus, moved)
    model = {"vocab_multiple": 1, "attention": "kernel"}
    config = tiny_config(moved, layout="fsdp", keep_checkpoints=1, model=model)
    assert pretrain.run(config, str(run)) == 0
    said = capsys.readouterr().out
    assert "\ncomputed in float32\nattention by einsum at length 32" in said  # of a CPU


@pytest.mark.slow
def test_phases_that_differ_in_model_masking_and_corpus(tiny_corpus, tmp_path, monkeypatch):
    """The run is opened as its last phase computes it, with the figures that it had."""
    monkeypatch.setattr(BertSpec, "phase_fields", ("layer_norm_eps",))  # as a family has its thetas
    shutil.copytree(tiny_corpus, tmp_path / "other")
    second = {
        "masking": {"rate": 0.3},
        "corpus": f"{tmp_path / 'other'}@1",
        "model": {"layer_norm_eps": 0.5},
    }
    run, config = tmp_path / "run", tiny_config(tiny_corpus, phase_2=second)
    assert pretrain.run(config, str(run)) == 0
    assert load_run(run).part()[0].spec.layer_norm_eps == 0.5
    last = rows_of(run, "heldout")[-1]
    figures = evaluate.run(str(run), None, batches=2)["64"]
    assert_close(figures, {name: last[name] for name in figures})
    config["phase_2"]["corpus"] = f"{tmp_path / 'other'}@1,{tiny_corpus}@2"
    with pytest.raises(InputError, match="started on other data than the config names now"):
        pretrain.run(config, str(run))


# ------------------------------------------------------------- in processes of their own


def wait_for(condition, process, seconds=PATIENCE):
    """Waits until `condition()`; fails if the process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.002)


def lines_in(run):
    path = run / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_kill_9_and_sigterm_at_any_moment_lose_nothing(tiny_corpus, tmp_path):
    """The run is killed before the first step and in two saves, and stopped; then it finishes."""
    config = tiny_config(
        tiny_corpus,
        total_steps=40,
        intervals={"log": 2, "evaluate": 20, "checkpoint": 3, "eval_batches": 2},
    )
    process = start_pretraining(tmp_path, config, tmp_path / "whole")
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "40 steps done" in output, errors
    run = tmp_path / "run"
    checkpoints = run / "checkpoints"

    def saving():
        return any("tmp" in p.name for p in checkpoints.glob("*")) and lines_in(run) >= 4

    for moment in (lambda: (run / "config.json").exists(), saving, saving):
        process = start_pretraining(tmp_path, config, run)
        wait_for(moment, process)
        process.kill()
        process.communicate()
    before = lines_in(run)
    process = start_pretraining(tmp_path, config, run)
    wait_for(lambda: lines_in(run) > before, process)
    process.terminate()
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == pretrain.EXIT_STOPPED, errors
    assert "stopped at step" in output
    process = start_pretraining(tmp_path, config, run)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "going on from step" in output, errors
    assert_same_run(run, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.devices(8)
def test_another_number_of_devices_goes_on_with_the_same_data(
    tiny_corpus, uninterrupted, tmp_path, monkeypatch
):
    """The run begins on 8 devices and ends on 1; it is the same except for rounding."""
    run, config = tmp_path / "run", tiny_config(tiny_corpus)
    real = MetricsLog.write

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        if at == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricsLog, "write", write)
    assert pretrain.run(config, str(run)) == pretrain.EXIT_STOPPED
    process = start_pretraining(tmp_path, config, run, devices=1)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert_same_run(run, uninterrupted, rel=2e-3)
