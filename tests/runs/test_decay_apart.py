"""A run that decays apart from another, which keeps its rate; both average their parameters."""

import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import evaluate, pretrain
from bertjax.runs.branch import branch_config
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import read_config
from bertjax.runs.source import load_run
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.metrics_log import MetricsLog
from tests.helpers.closeness import assert_close
from tests.helpers.tiny_run import metrics_of, tiny_config

STEPS = 12


def _config(corpus, total_steps=STEPS, first=6, decay_steps=0, **changes):
    """Two phases with `first` steps in the first; the second masks more."""
    return tiny_config(
        corpus,
        objective="masked_lm",
        total_steps=total_steps,
        phase_1={"share": first / total_steps},
        phase_2={"share": 1 - first / total_steps, "masking": {"rate": 0.3}},
        optimizer=dict(name="adamw", schedule="wsd", warmup_steps=4, decay_steps=decay_steps),
        intervals={"log": 3, "evaluate": 6, "checkpoint": 4},
        keep_checkpoints=9,
        **{"ema": 0.75, **changes},
    )


@pytest.fixture(scope="module")
def trained_constant(tiny_corpus, tmp_path_factory):
    """A run with a constant rate, and checkpoints of the steps 4, 6, 8 and 12."""
    run = tmp_path_factory.mktemp("constant") / "run"
    assert pretrain.run(_config(tiny_corpus), str(run)) == 0
    return run


@pytest.fixture(scope="module")
def trained_whole(tiny_corpus, tmp_path_factory):
    """A run whose own decay begins after step 8."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert pretrain.run(_config(tiny_corpus, 11, decay_steps=3), str(run)) == 0
    return run


def _untrained(run, config, *steps):
    """A run's config and the steps of its checkpoints: the config of a branch needs no more."""
    for step in steps:
        (run / "checkpoints" / str(step)).mkdir(parents=True)
    config_dict = Recipe.from_config(config).config_dict
    (run / "config.json").write_text(json.dumps(config_dict))
    return run


@pytest.fixture
def constant(tiny_corpus, tmp_path_factory):
    """The files of a run with a constant rate."""
    return _untrained(
        tmp_path_factory.mktemp("constant") / "run", _config(tiny_corpus), 4, 6, 8, 12
    )


@pytest.fixture
def whole(tiny_corpus, tmp_path_factory):
    """The files of a run whose own decay begins after step 8."""
    config = _config(tiny_corpus, 11, decay_steps=3)
    return _untrained(tmp_path_factory.mktemp("whole") / "run", config, 11)


def _files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_the_rate_falls_as_if_it_had_from_the_start(
    trained_constant, trained_whole, tiny_corpus, tmp_path, monkeypatch, capsys
):
    """Stopped by a signal and without the other run, the branch goes on to the same end."""
    before = _files(trained_constant)
    config = _config(tiny_corpus, decay_steps=3, decay_from=f"{trained_constant}@8")
    branch, real = tmp_path / "branch", MetricsLog.write

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        if (at, split) == (9, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write)
        assert pretrain.run(config, str(branch)) == pretrain.EXIT_STOPPED
    assert "going on from step 8" in capsys.readouterr().out
    stopped = load_run(branch).step
    assert 9 <= stopped < 11
    assert _files(trained_constant) == before
    moved = trained_constant.rename(trained_constant.parent / "elsewhere")
    try:
        config["decay_from"] = str(trained_constant)  # its first checkpoint is known
        assert pretrain.run(config, str(branch)) == 0
    finally:
        moved.rename(trained_constant)
    assert f"going on from step {stopped}" in capsys.readouterr().out
    rows = metrics_of(branch)
    assert rows == metrics_of(trained_whole)
    params = [jax.device_get(load_run(run).params) for run in (branch, trained_whole)]
    jax.tree.map(np.testing.assert_array_equal, *params)
    rates = {row["step"]: row["learning_rate"] for row in rows if row["split"] == "train"}
    assert rates[6] == rates[9] == np.float32(0.01)
    assert_close(rates[11], 0.01 * (1 - np.sqrt(2 / 3)), size=0.01)


def test_its_config_needs_no_other_run(whole, constant, tiny_corpus, tmp_path):
    config = _config(tiny_corpus, decay_steps=3, decay_from=f"{constant}@8")
    found = branch_config(Recipe.from_config(config), str(tmp_path / "new"))
    expected = read_config(whole) | {"decay_from": f"{constant}@8"}
    assert found["phase_1"].pop("share") == pytest.approx(expected["phase_1"].pop("share"))
    assert found["phase_2"].pop("share") == pytest.approx(expected["phase_2"].pop("share"))
    assert found == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    "step, decay_steps, ranges",
    [
        (4, 5, [range(9), range(9, 9)]),  # from the end of the warm-up the first phase goes on
        (6, 4, [range(6), range(6, 10)]),  # at its end the second begins
        (8, 1, [range(6), range(6, 9)]),
        (None, 7, [range(6), range(6, 19)]),  # after the last step
    ],
)
def test_every_step_stays_in_its_phase(constant, tiny_corpus, tmp_path, step, decay_steps, ranges):
    source = str(constant) if step is None else f"{constant}@{step}"
    config = _config(tiny_corpus, decay_steps=decay_steps, decay_from=source)
    found = branch_config(Recipe.from_config(config), str(tmp_path / "new"))
    assert found["decay_from"] == f"{constant}@{step or 12}"
    assert Recipe.from_config(found).ranges() == ranges


@pytest.mark.parametrize(
    "step, changes, message",
    [
        ("", {"decay_steps": 0}, "config.optimizer.decay_steps to the updates in which the rate"),
        ("@5", {}, r"run@5: no such checkpoint; there are \[4, 6, 8, 12\]: name one of them"),
        ("@8", {"seed": 3}, "that run has another config: seed was 0, is 3: give the config"),
        ("@8", {"total_steps": 10}, "another config: phase_1.share was 0.5, is 0.6"),
        ("@8", {"ema": 0.5}, "another config: ema was 0.75, is 0.5"),
    ],
)
def test_what_cannot_decay_apart(constant, tiny_corpus, tmp_path, step, changes, message):
    config = _config(tiny_corpus, **{"decay_steps": 3, "decay_from": f"{constant}{step}"} | changes)
    with pytest.raises(InputError, match=message):
        pretrain.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_in_a_decay(whole, tiny_corpus, tmp_path):
    config = _config(tiny_corpus, 11, decay_steps=2, decay_from=str(whole))
    with pytest.raises(InputError, match="run@11: the rate .* is constant from step 4 to 8: name"):
        pretrain.run(config, str(tmp_path / "run"))


def test_a_checkpoint_in_the_warm_up(constant, tiny_corpus, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for step in (4, 5):
        shutil.copytree(constant / "checkpoints/4", run / f"checkpoints/{step}")
    other = read_config(constant)
    other["optimizer"]["warmup_steps"] = 5
    (run / "config.json").write_text(json.dumps(other))

    def branch(step):
        config = _config(tiny_corpus, decay_steps=3, decay_from=f"{run}@{step}")
        config["optimizer"]["warmup_steps"] = 5
        return branch_config(Recipe.from_config(config), str(tmp_path / "new"))

    with pytest.raises(InputError, match="run@4: the rate .* is constant from step 5 to 12: name"):
        branch(4)
    assert branch(5)["total_steps"] == 8


def test_a_run_that_is_none(tiny_corpus, tmp_path):
    config = _config(tiny_corpus, decay_steps=2, decay_from=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="nowhere: not a run"):
        pretrain.run(config, str(tmp_path / "run"))


def test_a_folder_that_holds_another_run(constant, whole, tiny_corpus, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    config = _config(tiny_corpus, decay_steps=3, decay_from=f"{constant}@8")
    with pytest.raises(InputError, match="run holds a run with another config: decay_from was ''"):
        pretrain.run(config, str(tmp_path / "run"))


# ------------------------------------------------------------------------------ the average


@pytest.mark.slow
def test_the_average_is_what_is_evaluated_and_opened(trained_whole):
    """The figures of the run and of launch/evaluate.py are those of the averaged weights."""
    loaded = load_run(trained_whole)
    checkpoints = Checkpoints(trained_whole / "checkpoints", keep=1, read_only=True)
    trees, _ = checkpoints.restore({"params": loaded.params})
    both = jax.device_get((loaded.params, trees["params"]))
    differences = jax.tree.map(lambda a, p: np.abs(a - p).max(), *both)
    assert max(jax.tree.leaves(differences)) > 1e-3
    last = metrics_of(trained_whole)[-1]
    figures = evaluate.run(str(trained_whole), None, batches=2)["64"]
    assert_close(figures, {name: last[name] for name in figures})
