"""Complete fine-tuning runs: each family on a few rows in its official format."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import read_hugging_face
from bertjax.programs import convert, ensemble, finetune, predict
from bertjax.runs.fine_tuning.answers import numbered, predictions
from bertjax.runs.fine_tuning.data import read_examples
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.fine_tuning.job import begin
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.run_folder import read_results
from bertjax.runs.source import open_model
from bertjax.tasks import official_files
from bertjax.tasks.conll import Conll
from bertjax.tasks.question_answering import NULL_THRESHOLD
from bertjax.tasks.task import TRAIN
from bertjax.training.metrics_log import MetricsLog
from configs import finetune_ner as ner_configs
from tests.helpers import task_files
from tests.helpers.built_once import built_once
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.slow_cases import others_slow
from tests.helpers.task_files import FAMILIES, change, tiny_finetuning
from tests.helpers.tiny_run import metrics_of

_GRID = dict(learning_rate=(1e-2,), restarts=2)
_EVERY = dict(log=2, checkpoint=100)  # steps; a trial has eight


def _cola(tiny_run, folder, **changes):
    data = folder / "data"
    if not data.exists():
        task_files.write_cola(data, rows=64)
    grid = dict(epochs=(2,)) | changes.pop("grid", {})
    config = tiny_finetuning(tiny_run, data, task=dict(kind="glue", name="CoLA"), grid=grid)
    return change(config, **changes)


@pytest.fixture(scope="module")
def searched(tiny_run):
    """A folder with data/ and a finished run of two trials; do not write into it."""

    def build(folder):
        config = _cola(tiny_run, folder, grid=_GRID, intervals=_EVERY)
        assert finetune.run(config, str(folder / "run")) == 0

    # If this file changes, the folder is built again.
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return built_once(f"searched-{version}", build)


@pytest.fixture
def finished(searched, tmp_path):
    """A copy of its run, which a test may change."""
    return shutil.copytree(searched / "run", tmp_path / "run")


@pytest.mark.parametrize("name", others_slow(FAMILIES, "MRPC"))
def test_each_family_learns_and_writes_its_files(fine_tuned, name):
    config, run = fine_tuned(name)
    family = FAMILIES[name]
    results = read_results(run)
    task = TaskRecipe.from_config(config).task
    assert results["metric"] == task.metric and results["task"] == task.name
    assert results["dev"][task.dev_splits[0]][task.metric] >= family.least
    assert len(results["trials"]) == 1 and results["trials"][0]["degenerate"] == ""
    assert results["trials"][0]["value"] == pytest.approx(results["summary"][0]["mean"])
    for file, lines in family.predictions.items():
        text = (run / "predictions" / file).read_text(encoding="utf-8")
        assert lines is None or len(text.splitlines()) == lines
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {row["split"] for row in rows} == {"train", "dev"}
    train = [row["loss"] for row in rows if row["split"] == "train"]
    assert train[-1] < train[0]


@pytest.mark.slow
def test_answers_are_cut_by_borders_of_windows(fine_tuned):
    """This ensures that the small SQuAD has all the features of the real one."""
    config, run = fine_tuned("SQuAD 1.1")
    recipe = TaskRecipe.from_config(config)
    questions = recipe.task.read(TRAIN)
    tokenizer = open_model(str(run)).tokenizer
    windows = recipe.task.family.encode(questions, tokenizer, recipe.max_length, labelled=True)
    assert len(windows) > len(questions)
    answered = windows.labels["start_positions"] > 0
    assert set(windows.question[answered]) == set(range(len(questions)))
    assert not answered.all()
    handed_in = json.loads((run / "predictions" / "squad-dev.json").read_text(encoding="utf-8"))
    assert not all(map(str.isascii, handed_in.values()))


# ------------------------------------------------------------------------------ the model


_SERVED = ["CoLA", "STS-B", "SQuAD 2.0", "SWAG", "NER", "own labels"]


@pytest.mark.parametrize("name", others_slow(_SERVED, "SQuAD 2.0", "NER", "own labels"))
def test_the_model_predicts_new_text_as_it_did_dev(fine_tuned, name):
    """launch/predict.py is tested with the run and with its folder for transformers."""
    config, run = fine_tuned(name)
    task = TaskRecipe.from_config(config).task
    dev = task.read("dev")
    if name == "SQuAD 2.0":
        # The threshold equals the odds of one question, so rounding decides about that question.
        odds = json.loads((run / "predictions" / "squad-dev-null_odds.json").read_text())
        threshold = read_results(run)["settings"][NULL_THRESHOLD]
        dev = [example for example in dev if odds[example.id] != threshold]
    dev = dev[:7]
    lines = {
        "CoLA": lambda e: e.a,
        "own labels": lambda e: e.a,
        "STS-B": lambda e: f"{e.a} ||| {e.b}",
        "SQuAD 2.0": lambda e: json.dumps({"question": e.question, "context": e.context}),
        "SWAG": lambda e: json.dumps(
            {"context": e.context, "prompt": e.prompt, "choices": e.choices}
        ),
        "NER": lambda e: " ".join(e.words),
    }[name]
    model, again = open_fine_tuned(str(run)), open_fine_tuned(f"hf:{run / 'model'}")
    shown = list(predictions(model, numbered(map(lines, dev), "text"), "text"))
    same = list(predictions(again, numbered(map(lines, dev), "text"), "text"))
    assert shown == same and len(shown) == 7
    if name == "CoLA":
        handed_in = (run / "predictions" / "CoLA-dev.tsv").read_text().splitlines()[1:8]
        classes = task.family.classes
        assert [str(classes.index(each["label"])) for each in shown] == [
            line.split("\t")[1] for line in handed_in
        ]
        assert all(sum(each["probabilities"].values()) == pytest.approx(1) for each in shown)
    if name == "own labels":
        written = (run / "predictions" / "dev.jsonl").read_text().splitlines()[:7]
        for each, line in zip(shown, map(json.loads, written), strict=True):
            assert_close(each.pop("probabilities"), line.pop("probabilities"), size=1.0)
            assert each == line
    if name == "STS-B":
        handed_in = (run / "predictions" / "STS-B-dev.tsv").read_text().splitlines()[1:8]
        values = [float(line.split("\t")[1]) for line in handed_in]
        assert np.clip([each["value"] for each in shown], 0, 5) == pytest.approx(values, abs=1e-3)
    if name == "SQuAD 2.0":
        handed_in = json.loads((run / "predictions" / "squad-dev.json").read_text())
        assert [each["answer"] for each in shown] == [handed_in[e.id] for e in dev]
        for each, example in zip(shown, dev, strict=True):
            for answer in each["answers"]:
                assert example.context[answer["start"] : answer["end"]] == answer["answer"]


# --------------------------------------------------------------------------- going on


def _without_clock(results):
    for trial in results["trials"]:
        trial.pop("seconds")
    return results


def _assert_same(run, other):
    """Asserts that two runs have the same results, metrics and model."""
    assert _without_clock(read_results(run)) == _without_clock(read_results(other))
    assert metrics_of(run) == metrics_of(other)
    one, two = (read_hugging_face(each / "model", "model") for each in (run, other))
    assert one.identity == two.identity
    assert np.array_equal(one.params["classifier"]["kernel"], two.params["classifier"]["kernel"])


@contextlib.contextmanager
def _signal_at(step, monkeypatch):
    """Sends SIGTERM in the block when the line of this step is written; yields the steps so far."""
    real, written = MetricsLog.write, []

    def write(metrics_log, at, split, metrics):
        real(metrics_log, at, split, metrics)
        written.append(at)
        if at == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsLog, "write", write)
        yield written


# Inside a trial, and at its last step.
@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 8])
def test_a_signal_stops_a_trial_and_it_goes_on_exactly(
    tiny_run, searched, tmp_path, monkeypatch, capsys, step
):
    config = _cola(tiny_run, searched, grid=_GRID, intervals=_EVERY)
    run = tmp_path / "run"
    with _signal_at(step, monkeypatch) as before:
        assert finetune.run(config, str(run)) == 75
    output = capsys.readouterr().out
    assert "trial 1" in output and "trial 2" not in output
    assert not (run / "results.json").exists()
    with _signal_at(None, monkeypatch) as after:
        assert finetune.run(config, str(run)) == 0
    assert before + after == [2, 4, 6, 8] * 2, "no step is made again"
    saved = min(step + 1, 8)  # the next update had started when the line was written
    assert f"going on from step {saved}\n" in capsys.readouterr().out
    _assert_same(run, searched / "run")


def test_a_finished_command_only_tells_what_it_found(tiny_run, searched, finished, capsys):
    before, chosen = read_results(finished), read_results(finished)["chosen"]["seed"]
    config = _cola(tiny_run, searched, grid=_GRID, intervals=_EVERY)
    assert finetune.run(config, str(finished)) == 0
    output = capsys.readouterr()
    name = f"batch16-rate0.01-epochs2-seed{chosen}"
    assert f"chosen: {name}: dev: matthews {before['dev']['dev']['matthews']:.2f}, " in output.out
    assert "new in every trial: classifier\n" in output.out and "predicting" not in output.err
    assert read_results(finished) == before
    assert read_hugging_face(finished / "model", "model").task["trial"] == name
    assert not list((finished / "trials").rglob("checkpoints"))


def test_a_bad_line_to_be_predicted_is_found_before_training(tiny_run, tmp_path):
    config = _cola(tiny_run, tmp_path)
    with open(tmp_path / "data" / "CoLA" / "test.tsv", "a") as file:
        file.write("13\n")
    with pytest.raises(InputError, match="test.tsv line 15: 1 columns"):
        finetune.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_another_config_is_refused(tiny_run, finished, tmp_path):
    with pytest.raises(InputError, match=r"max_length was 48, is 40"):
        finetune.run(_cola(tiny_run, tmp_path, grid=_GRID, max_length=40), str(finished))
    with pytest.raises(InputError, match="seed was 0"):
        finetune.run(_cola(tiny_run, tmp_path, grid=_GRID, seed=1), str(finished))


def test_a_run_goes_on_in_its_dtype(tiny_run, tmp_path):
    """The config leaves it to the device, which was another one when the run was started."""
    config, run = _cola(tiny_run, tmp_path), tmp_path / "run"
    recipe, _ = begin(config, str(run))
    assert (
        recipe.model["compute_dtype"] == recipe.config_dict["model"]["compute_dtype"] == "float32"
    )
    run.mkdir()
    then = {**recipe.model, "compute_dtype": "bfloat16"}
    started = recipe.config_dict | {"model": {**then, "attention": "einsum"}}
    (run / "config.json").write_text(json.dumps(started))
    recipe, _ = begin(config, str(run))
    assert recipe.model == then
    config.model.compute_dtype = "float32"
    with pytest.raises(InputError, match="model.compute_dtype was 'bfloat16', is 'float32'"):
        begin(config, str(run))


# ------------------------------------------------ left to right, and a BiLSTM (Table 5)


def _tags_of_next_words(init_from, folder, **changes):
    data = task_files.write_tags_of_next_words(folder / "data")
    task = dict(kind="table", problem="tagging")
    return tiny_finetuning(init_from, data, task=task, **changes)


@pytest.mark.slow
def test_a_bilstm_gives_what_left_to_right_lacks(left_to_right_run, tmp_path, capsys):
    """Tags depend on the next word. Every program opens the run, but for transformers."""
    bilstm = dict(hidden=24, depth=1, dropout=0.0)
    config, run = _tags_of_next_words(left_to_right_run, tmp_path, bilstm=bilstm), tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    results = read_results(run)
    assert results["dev"]["dev"]["accuracy"] > 85
    assert "new in every trial: bilstm, classifier\n" in capsys.readouterr().out
    written = (run / "predictions" / "test.jsonl").read_bytes()

    (run / "results.json").unlink()
    shutil.rmtree(run / "predictions")
    assert finetune.run(config, str(run)) == 0
    assert "trial 1 of 1" not in capsys.readouterr().out
    assert read_results(run) == results
    assert (run / "predictions" / "test.jsonl").read_bytes() == written

    lines = (tmp_path / "data" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    words = [json.dumps({"words": json.loads(line)["words"]}) for line in lines]
    (tmp_path / "words.jsonl").write_text("\n".join(words), encoding="utf-8")
    predict.run(str(run), str(tmp_path / "words.jsonl"), str(tmp_path / "answers"))
    assert (tmp_path / "answers").read_bytes() == written
    printed = capsys.readouterr().err
    assert "  reads left to right\n  a BiLSTM over it: 1 layers of 24\n" in printed

    with pytest.raises(InputError, match=f"{run}: transformers has no such model"):
        convert.run(str(run), f"hf:{tmp_path / 'exported'}")
    assert not (tmp_path / "exported").exists()
    assert convert.run(str(run), f"stablehlo:{tmp_path / 'served'}")["the artifact"] < rounding(
        LOGITS
    )

    model = open_model(str(run))
    for module, goes_on in ((model.bilstm, True), (model.bilstm.clone(hidden=12), False)):
        beginning = model.beginning(model.head_type, model.classes, module)
        assert beginning.keys() == {"bert"} | ({"bilstm", "classifier"} if goes_on else set())
    (run / "parameters" / "parameters.safetensors").write_bytes(b"12345678")
    with pytest.raises(InputError, match="parameters.safetensors: damaged"):
        open_model(str(run))
    (run / "parameters" / "parameters.safetensors").unlink()
    with pytest.raises(InputError, match=f"{run}: no parameters.safetensors in .*: repeat"):
        open_model(str(run))


@pytest.mark.slow
def test_without_a_bilstm_left_to_right_does_not_see_the_next_word(left_to_right_run, tmp_path):
    """Such taggers go to transformers, and are opened as all models."""
    config, run = _tags_of_next_words(left_to_right_run, tmp_path), tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    (scores,) = read_results(run)["dev"].values()
    assert scores["accuracy"] < 75
    assert open_model(str(run)).spec.causal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hidden", "folder"),
    [("MRPC", 0, "parameters"), ("MRPC", 24, "parameters"), ("SQuAD 1.1", 0, "model")],
)
def test_the_tasks_of_table_5(left_to_right_run, tmp_path, name, hidden, folder):
    """Only questions to weights that read left to right have a model in transformers."""
    family = FAMILIES[name]
    data = family.write(tmp_path / "data")
    config = tiny_finetuning(left_to_right_run, data, task=family.task)
    config.grid.batch_size, config.bilstm.hidden = (8,), hidden
    run = tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    results = read_results(run)
    assert results["dev"]["dev"][results["metric"]] >= family.least
    assert {"model", "parameters"} & {path.name for path in run.iterdir()} == {folder}
    task = TaskRecipe.from_config(config).task
    examples = read_examples(task)["dev"]
    model = open_fine_tuned(str(run))
    found = task.score(examples, model.predict(examples, "dev"), model.settings)
    assert found == pytest.approx(results["dev"]["dev"])

    copy = shutil.copytree(run, tmp_path / "copy")
    ensemble.run([str(run), str(copy)], str(tmp_path / "both"), "probabilities")
    assert read_results(tmp_path / "both")["dev"]["dev"] == pytest.approx(found)


# --------------------------------------------------------------------- what goes wrong


@pytest.mark.slow
def test_degenerate_and_diverged_trials_are_flagged(tiny_run, tmp_path):
    grid = dict(learning_rate=(0.5, 1e30))
    config = _cola(tiny_run, tmp_path, grid=grid, optimizer=dict(clip_norm=1e30))
    assert finetune.run(config, str(tmp_path / "run")) == 0
    constant, diverged = read_results(tmp_path / "run")["trials"]
    assert constant["degenerate"].startswith("all are '")
    assert diverged["degenerate"].startswith("diverged: step ") and diverged["value"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(init_from=""), "config.init_from is empty"),
        (dict(max_length=65), "config.max_length=65: must be from 8 to 64"),
        (dict(task=dict(kind="glue", name="MRP")), "must be one of CoLA"),
        (dict(grid=dict(batch_size=())), "config.grid.batch_size=()"),
        pytest.param(
            *(dict(grid=dict(batch_size=(12,))), "a batch of 12 sequences does not divide"),
            marks=pytest.mark.devices(8),
        ),
        (dict(grid=dict(restarts=0)), "config.grid.restarts=0"),
        (dict(accumulate=3), "is not a multiple of config.accumulate=3"),
        (dict(optimizer=dict(warmup_proportion=1.5)), "warmup_proportion=1.5"),
        (dict(intervals=dict(log=0)), "config.intervals.log=0"),
        (dict(task=dict(kind="glue", name="RTE")), "train.tsv"),
        (dict(model=dict(compute_dtype="float8")), "compute_dtype='float8'"),
        (dict(model=dict(scan_layers=True), optimizer=dict(name="lamb")), "one tensor of all"),
    ],
)
def test_bad_configs_are_refused_before_anything_is_written(tiny_run, tmp_path, changes, message):
    config = _cola(tiny_run, tmp_path, **changes)
    with pytest.raises(InputError) as caught:
        finetune.run(config, str(tmp_path / "run"))
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_each_split_is_read_once(tmp_path, monkeypatch):
    """This includes the test file of column files, which is searched for tags."""
    data = task_files.write_conll(tmp_path)
    shutil.copy(data / "eng.testa", data / "eng.testb")
    read = []
    lines = official_files.lines
    monkeypatch.setattr(
        official_files,
        "lines",
        lambda folder, *names: (read.append(names[0]) or line for line in lines(folder, *names)),
    )
    examples = read_examples(Conll(str(data)))
    assert list(examples) == [TRAIN, "dev", "test"]
    for name in ("eng.train", "eng.testa", "eng.testb"):
        count = len((data / name).read_text().splitlines())
        assert count <= read.count(name) < 1.5 * count


def test_features_of_a_task_that_is_no_tagging(tiny_run, tmp_path):
    config = task_files.tiny_finetuning(
        tiny_run, task_files.write_swag(tmp_path / "data"), task=dict(kind="swag")
    )
    config.features = ner_configs.get_config("features").features
    with pytest.raises(InputError, match="config.features: SWAG is no tagging: only a tagger"):
        finetune.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
