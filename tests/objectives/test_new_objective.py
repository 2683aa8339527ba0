"""An objective that is defined in tests alone goes the whole way of one that is in the registry."""

import dataclasses
import functools
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from parity import PARITY
from tiny_run import metrics_of, tiny_config

from bertjax.base.errors import InputError
from bertjax.config import paper_config, place_on_pod
from bertjax.corpus.store import HELDOUT, TokenStore
from bertjax.objectives.registry import OBJECTIVES
from bertjax.programs import compile_check, evaluate, pretrain
from bertjax.runs.assembly import make_phases, make_training
from bertjax.runs.open_model import open_model
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import load_run
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.journal import Journal
from bertjax.training.step import means

STEPS = 24
_PADDED = {"vocab_multiple": 8}
METRICS = {"parity_loss", "parity_accuracy", "distance_loss"}


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The one line that a new objective costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OBJECTIVES, PARITY.name, PARITY)
        yield


def _config(corpus, **changes):
    phases = {"phase_1": {"share": 1.0}, "phase_2": {"share": 0.0}}
    intervals = {"log": 2, "evaluate": 12, "checkpoint": STEPS, "eval_batches": 2}
    changes = dict(total_steps=STEPS, intervals=intervals) | phases | changes
    return tiny_config(corpus, objective=PARITY.name, **changes)


@pytest.fixture(scope="module")
def run(tiny_corpus, pretrained_once):
    """A finished run; do not write into it."""
    return pretrained_once("parity_run", _config(tiny_corpus))


def _params(run):
    return flatten_dict(jax.device_get(load_run(run).params), sep="/")


def test_it_learns(run):
    train = [row for row in metrics_of(run) if row["split"] == "train"]
    held_out = [row for row in metrics_of(run) if row["split"] == "heldout"]
    assert train[0].keys() >= METRICS | {"loss", "grad_norm"}
    assert not any(name.startswith(("mlm", "nsp")) for row in train + held_out for name in row)
    for row in train + held_out:
        expected = row["parity_loss"] + 0.25 * row["distance_loss"]
        assert row["loss"] == pytest.approx(expected, rel=0.02)
    assert train[0]["parity_loss"] > 0.5
    assert held_out[-1]["parity_loss"] < 0.4 and held_out[-1]["parity_accuracy"] > 0.85
    assert held_out[-1]["parity_bits"] == pytest.approx(held_out[-1]["parity_loss"] / np.log(2))
    assert 0 < held_out[-1]["parity_accuracy_stderr"] < 0.05


def test_the_teacher_stays_as_it_was(run, tiny_corpus):
    recipe = Recipe.from_config(_config(tiny_corpus))
    spec = recipe.spec(Tokenizer.open(tiny_corpus).vocabulary_size)
    fresh = make_training(recipe, spec).fresh_state(recipe.seed).params
    before, after = flatten_dict(jax.device_get(fresh), sep="/"), _params(run)
    assert before.keys() == after.keys()
    same = {name for name in before if (before[name] == after[name]).all()}
    assert same == {"teacher/table"}


def test_a_stopped_run_goes_on_exactly(run, tiny_corpus, tmp_path, monkeypatch):
    real = Journal.write

    def write(journal, at, split, metrics):
        real(journal, at, split, metrics)
        if (at, split) == (14, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "write", write)
        assert pretrain.run(_config(tiny_corpus), str(tmp_path / "run")) == pretrain.EXIT_STOPPED
    assert 14 <= load_run(tmp_path / "run").step < STEPS
    assert pretrain.run(_config(tiny_corpus), str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(run)
    jax.tree.map(np.testing.assert_array_equal, _params(tmp_path / "run"), _params(run))


def test_evaluation(run, tmp_path, capsys):
    """The figures are those of the run, with the same hidden tokens, in the columns it asks for."""
    copy = shutil.copytree(run, tmp_path / "run")
    results = evaluate.run(str(copy), None, batches=2)
    last = metrics_of(run)[-1]
    assert last["split"] == "heldout"
    assert results["32"] == pytest.approx({name: last[name] for name in results["32"]}, rel=1e-6)
    assert json.loads((copy / "evaluation.json").read_text())["32"] == results["32"]
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["length", *PARITY.columns]
    assert [line.split()[0] for line in table[2:]] == ["32", "64"]


def test_its_warning_is_shown(run, tmp_path, capsys, monkeypatch):
    loaded = load_run(run)
    head = {"kernel": np.zeros((32, 2), np.float32), "bias": np.array([0, 1], np.float32)}
    other = dataclasses.replace(loaded, params=dict(loaded.params) | {"parity": head})
    monkeypatch.setattr(evaluate, "load_run", lambda model: other)
    results = evaluate.run(str(tmp_path), None, batches=2)
    assert all(metrics["parity_accuracy"] < 0.5 for metrics in results.values())
    printed = capsys.readouterr().out.splitlines()[4:]
    assert printed == [f"length {length}: no better than a coin" for length in (32, 64)]


def test_other_programs_have_no_use_for_its_model(run):
    with pytest.raises(InputError, match="run: a run with config.objective='parity', whose model"):
        open_model(str(run))


@functools.cache
def _three_steps_of_one_device(corpus):
    return _three_steps(_config(corpus, model=_PADDED), corpus, 1)


def _three_steps(config, corpus, devices):
    recipe, tokenizer = Recipe.from_config(config), Tokenizer.open(corpus)
    spec = recipe.spec(tokenizer.vocabulary_size)
    stores = TokenStore.open(corpus), TokenStore.open(corpus, HELDOUT)
    (phase,) = make_phases(recipe, spec, tokenizer, *stores)
    training = make_training(recipe, spec, jax.devices()[:devices])
    state, trainer, metrics = training.fresh_state(recipe.seed), training.trainer, []
    for number in range(3):
        parts = trainer.put(phase, number)
        state, sums = trainer.update(state, parts, phase.accumulate, seed=recipe.seed)
        metrics.append(means(jax.device_get(sums)))
    return metrics, flatten_dict(jax.device_get(state.params), sep="/")


@pytest.mark.devices(8)
@pytest.mark.slow
@pytest.mark.parametrize("name, model", [("zero1", 1), ("tensor_fsdp", 2)])
def test_layouts_train_what_one_device_trains(tiny_corpus, name, model):
    expected_metrics, expected = _three_steps_of_one_device(tiny_corpus)
    config = _config(tiny_corpus, model=_PADDED, layout=name, mesh={"model": model})
    metrics, params = _three_steps(config, tiny_corpus, 8)
    for actual, of_one in zip(metrics, expected_metrics, strict=True):
        assert actual == pytest.approx(of_one, rel=1e-4)
    for path, leaf in expected.items():
        np.testing.assert_allclose(params[path], leaf, atol=1e-4, err_msg=path)


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report():
    config = place_on_pod(paper_config())
    config.objective = PARITY.name
    config.total_steps, config.optimizer.warmup_steps = 7_200, 10
    config.phase_1.update(share=1.0, batch_size=64)
    config.phase_2.update(share=0.0)
    sizes = dict(size="tiny", num_hidden_layers=1, hidden_size=256, num_attention_heads=4)
    config.model = config.model.to_dict() | sizes
    (report,) = compile_check.run(config, "v5e:4x4")
    assert report.chips == 16
    for times in report.yardsticks.values():
        assert {"attention", "feed-forward", "optimizer"} <= {part for part, _ in times.parts}
        assert 0.001 < report.mfu(times) < 1
