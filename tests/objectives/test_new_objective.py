"""An objective that is defined in tests alone goes the whole way of one that is in the registry."""

import contextlib
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

from bertjax.base.errors import InputError
from bertjax.config import paper_config, place_on_pod
from bertjax.data.corpus.store import HELDOUT, TokenStore
from bertjax.objectives.registry import OBJECTIVES
from bertjax.programs import compile_check, evaluate, pretrain
from bertjax.runs.assembly import make_experiment, make_phases
from bertjax.runs.initialize import frozen_params
from bertjax.runs.job import Job
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import load_run, open_model
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import Checkpoints, newest_metadata
from bertjax.training.loop import Trainer
from bertjax.training.metrics_log import MetricsLog
from bertjax.training.step import means
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.tiny_run import ONE_LENGTH, metrics_of, tiny_config
from tests.objectives.parity import Parity

STEPS = 24
_PADDED = {"vocab_multiple": 8}
METRICS = {"parity_loss", "parity_accuracy", "distance_loss"}


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The one line that a new objective costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OBJECTIVES, Parity.name, Parity)
        yield


def _config(corpus, **changes):
    intervals = {"log": 2, "evaluate": 12, "checkpoint": STEPS, "eval_batches": 2}
    changes = dict(total_steps=STEPS, intervals=intervals) | ONE_LENGTH | changes
    return tiny_config(corpus, objective=Parity.name, **changes)


@pytest.fixture(scope="module")
def run(tiny_corpus, pretrained_once):
    """A finished run; do not write into it."""
    return pretrained_once("parity_run", _config(tiny_corpus))


def _params(run):
    return flatten_dict(jax.device_get(load_run(run).params), sep="/")


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def taught(tiny_corpus, tiny_run, tmp_path_factory):
    """A run whose parts begin with the weights of another, its beginning, and its checkpoint."""
    folder, source = tmp_path_factory.mktemp("taught"), str(tiny_run)
    config = _config(tiny_corpus, init_from={"student": source, "teacher": source})
    job = Job.of(config, str(folder))
    with contextlib.closing(Checkpoints(folder / "checkpoints", keep=1)) as checkpoints:
        state, _ = job.begin()
        metadata = {**job.plan.metadata, "step": 0, "window": {}}
        checkpoints.save(0, state.checkpointables(), metadata)
    return job, state


@pytest.mark.slow
def test_parts_begin_with_the_weights_that_they_are_given(taught, tiny_run):
    job, state = taught
    params, new = load_run(tiny_run).params, job.trainer.experiment.initial_state(job.recipe.seed)
    student, teacher = state.params["student"], job.trainer.experiment.frozen["teacher"]
    for part in (student, teacher):
        jax.tree.map(np.testing.assert_array_equal, part["bert"], params["bert"])
    jax.tree.map(np.testing.assert_array_equal, teacher["pooler"], params["pooler"])
    jax.tree.map(np.testing.assert_array_equal, student["parity"], new.params["student"]["parity"])
    said = job.announcement().splitlines()
    assert [line.strip() for line in said if "not trained on" in line] == [
        *("not trained on: masked_lm", "not trained on: next_sentence_head"),
        "not trained on: pooler",
    ]
    assert [line.strip() for line in said if "random" in line] == [
        "random: parity",
        "random: taught",
    ]


def test_weights_of_a_part_that_is_not_there(tiny_corpus, tiny_run, tmp_path):
    config = _config(tiny_corpus, init_from={"techer": str(tiny_run)})
    with pytest.raises(InputError, match="init_from.techer: .* no such part, but student, teacher"):
        Job.of(config, str(tmp_path / "run"))
    config = tiny_config(tiny_corpus, init_from={"model": str(tiny_run)})
    with pytest.raises(
        InputError, match="init_from.model: .* no such part, but one without a name"
    ):
        Job.of(config, str(tmp_path / "run"))


@pytest.mark.slow
def test_the_teacher_is_not_in_the_state(run, tiny_corpus):
    """It has no optimizer state, and a checkpoint has only its identity."""
    job = Job.of(_config(tiny_corpus), str(run))
    state = job.trainer.experiment.state
    for tree in (state.params, *(moments for moments in state.opt_state if hasattr(moments, "mu"))):
        assert "teacher" not in str(jax.tree_util.tree_structure(tree))
    assert load_run(run).params.keys() == {"student"}
    names = (path.read_text() for path in (run / "checkpoints").rglob("_METADATA"))
    assert all("student" in text and "teacher" not in text for text in names)
    data = newest_metadata(run / "checkpoints")["data"]
    assert data == {**data, "frozen teacher": "seed 0"} and data.keys() > {"train", "heldout"}


@pytest.mark.slow
def test_a_teacher_with_other_weights_is_refused(taught, run, tiny_run, monkeypatch):
    job, _ = taught
    pretrained = open_model(str(tiny_run))
    other = dataclasses.replace(pretrained, params=jax.tree.map(lambda x: 2 * x, pretrained.params))
    monkeypatch.setattr("bertjax.runs.job.open_model", lambda source: other)
    with pytest.raises(InputError, match="the run was started on other data than the config"):
        Job.of(job.recipe.config_dict, str(job.folder)).train()
    loaded = load_run(run)
    before = dataclasses.replace(loaded, data=loaded.data | {"frozen teacher": pretrained.identity})
    monkeypatch.setattr(evaluate, "load_run", lambda model: before)
    with pytest.raises(InputError, match="run: config.init_from=.* other weights now than the run"):
        evaluate.run(str(run), None, batches=1)


@pytest.mark.slow
def test_a_stopped_run_goes_on_exactly(run, tiny_corpus, tmp_path, monkeypatch):
    real = MetricsLog.write

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        if (at, split) == (14, "train"):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write)
        assert pretrain.run(_config(tiny_corpus), str(tmp_path / "run")) == pretrain.EXIT_STOPPED
    assert 14 <= load_run(tmp_path / "run").step < STEPS
    assert pretrain.run(_config(tiny_corpus), str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(run)
    jax.tree.map(np.testing.assert_array_equal, _params(tmp_path / "run"), _params(run))


@pytest.mark.slow
def test_evaluation(run, tmp_path, capsys):
    """The figures are those of the run, with the same hidden tokens, in the columns it asks for."""
    copy = shutil.copytree(run, tmp_path / "run")
    results = evaluate.run(str(copy), None, batches=2)
    last = metrics_of(run)[-1]
    assert last["split"] == "heldout"
    assert results["32"] == pytest.approx({name: last[name] for name in results["32"]}, rounding(1))
    assert json.loads((copy / "evaluation.json").read_text())["32"] == results["32"]
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["length", *Parity.columns]
    assert [line.split()[0] for line in table[2:]] == ["32", "64"]


@pytest.mark.slow
def test_its_warning_is_shown(run, tmp_path, capsys, monkeypatch):
    loaded = load_run(run)
    head = {"kernel": np.zeros((32, 2), np.float32), "bias": np.array([0, 1], np.float32)}
    student = {**loaded.params["student"], "parity": head}
    other = dataclasses.replace(loaded, params={"student": student})
    monkeypatch.setattr(evaluate, "load_run", lambda model: other)
    results = evaluate.run(str(tmp_path), None, batches=2)
    assert all(metrics["parity_accuracy"] < 0.5 for metrics in results.values())
    printed = capsys.readouterr().out.splitlines()[4:]
    assert printed == [f"length {length}: no better than a coin" for length in (32, 64)]


@pytest.mark.slow
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
    experiment = make_experiment(recipe, spec, jax.devices()[:devices])
    frozen, _ = frozen_params(experiment.model, experiment.placement, {}, recipe.seed)
    trainer, metrics = Trainer(dataclasses.replace(experiment, frozen=frozen)), []
    state = experiment.initial_state(recipe.seed)
    for number in range(3):
        rate = recipe.schedule()(number)
        state, sums = trainer.update(state, phase, trainer.put(phase, number), rate, recipe.seed)
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
        assert_close(params[path], leaf, 1000, size=1, err_msg=path)


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report():
    config = place_on_pod(paper_config())
    config.objective = Parity.name
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
