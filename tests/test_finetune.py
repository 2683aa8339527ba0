"""Fine-tuning from end to end: each family on a few rows in its official format."""

import contextlib
import json
import os
import shutil
import signal

import numpy as np
import pytest
import task_files
from task_files import FAMILIES, change, tiny_finetuning

from bertjax import finetune, predict
from bertjax.errors import InputError, NonFiniteLoss
from bertjax.fine_tuning.data import read_examples
from bertjax.fine_tuning.recipe import TaskRecipe
from bertjax.fine_tuning.search import _spreads
from bertjax.fine_tuning.trials import Trials
from bertjax.interop.hugging_face import read_folder
from bertjax.open_model import open_model
from bertjax.run_folder import checkpoints_folder
from bertjax.tasks import official_files
from bertjax.tasks.conll import Conll
from bertjax.tasks.task import TRAIN
from bertjax.training.journal import Journal
from configs import finetune_ner as ner_configs


def _results(run):
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_learns_and_hands_in(fine_tuned, name):
    config, run = fine_tuned(name)
    family = FAMILIES[name]
    results = _results(run)
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


def test_answers_are_cut_by_borders_of_windows(fine_tuned):
    """So that the data of SQuAD has all that the real one has."""
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


def test_the_scores_are_those_of_the_predictions(fine_tuned):
    """The file that was handed in gives the figure that was told."""
    _, run = fine_tuned("CoLA")
    lines = (run / "predictions" / "CoLA-dev.tsv").read_text().splitlines()[1:]
    predicted, gold = zip(*(line.split("\t")[1:] for line in lines), strict=True)
    accuracy = 100 * np.mean([a == b for a, b in zip(predicted, gold, strict=True)])
    assert _results(run)["dev"]["dev"]["accuracy"] == pytest.approx(accuracy)


# ------------------------------------------------------------------------------ the model


@pytest.mark.parametrize("name", ["CoLA", "STS-B", "SQuAD 2.0", "SWAG", "NER"])
def test_the_model_predicts_new_text_as_it_did_dev(fine_tuned, name):
    """Through the door's program, from the run and from its folder for transformers."""
    config, run = fine_tuned(name)
    task = TaskRecipe.from_config(config).task
    dev = task.read("dev")[:7]
    lines = {
        "CoLA": lambda e: e.a,
        "STS-B": lambda e: f"{e.a} ||| {e.b}",
        "SQuAD 2.0": lambda e: json.dumps({"question": e.question, "context": e.context}),
        "SWAG": lambda e: json.dumps(
            {"context": e.context, "prompt": e.prompt, "choices": e.choices}
        ),
        "NER": lambda e: " ".join(e.words),
    }[name]
    shown = list(predict.predictions(open_model(str(run)), map(lines, dev), "text"))
    same = list(predict.predictions(open_model(f"hf:{run / 'model'}"), map(lines, dev), "text"))
    assert shown == same and len(shown) == 7
    if name == "CoLA":
        handed_in = (run / "predictions" / "CoLA-dev.tsv").read_text().splitlines()[1:8]
        classes = task.family.classes
        assert [str(classes.index(each["label"])) for each in shown] == [
            line.split("\t")[1] for line in handed_in
        ]
        assert all(sum(each["probabilities"].values()) == pytest.approx(1) for each in shown)
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


def test_the_model_is_that_of_the_best_trial(tiny_run, tmp_path):
    data = task_files.write_cola(tmp_path / "data")
    grid = dict(learning_rate=(1e-2, 1e-5), epochs=(1, 3))
    config = tiny_finetuning(tiny_run, data, task=dict(kind="glue", name="CoLA"), grid=grid)
    assert finetune.run(config, str(tmp_path / "run")) == 0
    results = _results(tmp_path / "run")
    values = [trial["value"] for trial in results["trials"]]
    assert len(values) == 4 and len(set(values)) > 1
    best = results["trials"][int(np.argmax(values))]
    assert {key: best[key] for key in results["chosen"]} == results["chosen"]
    assert results["dev"] == best["dev"]
    model = read_folder(tmp_path / "run" / "model", "model")
    assert model.task["trial"].startswith(f"batch16-rate{results['chosen']['learning_rate']:g}-")
    assert not list((tmp_path / "run" / "trials").rglob("checkpoints"))


# --------------------------------------------------------------------------- going on


def _cola(tiny_run, folder, **changes):
    data = folder / "data"
    if not data.exists():
        task_files.write_cola(data, rows=64)
    grid = dict(epochs=(2,)) | changes.pop("grid", {})
    config = tiny_finetuning(tiny_run, data, task=dict(kind="glue", name="CoLA"), grid=grid)
    return change(config, **changes)


def _without_clock(results):
    for trial in results["trials"]:
        trial.pop("seconds")
    return results


def test_trials_that_are_done_are_not_run_again(tiny_run, tmp_path, capsys):
    once = tmp_path / "once"
    assert finetune.run(_cola(tiny_run, tmp_path, grid=dict(restarts=3)), str(once)) == 0
    run = tmp_path / "run"
    assert finetune.run(_cola(tiny_run, tmp_path), str(run)) == 0
    first = (run / "trials" / "batch16-rate0.01-epochs2-seed0" / "results.json").stat().st_mtime_ns
    capsys.readouterr()
    assert finetune.run(_cola(tiny_run, tmp_path, grid=dict(restarts=3)), str(run)) == 0
    output = capsys.readouterr().out
    assert "trial 1 of 3" not in output and "trial 3 of 3" in output
    done = run / "trials" / "batch16-rate0.01-epochs2-seed0" / "results.json"
    assert done.stat().st_mtime_ns == first
    assert _without_clock(_results(run)) == _without_clock(_results(once))
    seeds = [trial["dev"]["dev"] for trial in _results(run)["trials"]]
    assert len({json.dumps(each) for each in seeds}) > 1, "restarts differ"
    with pytest.raises(InputError, match="seed was 0"):
        finetune.run(_cola(tiny_run, tmp_path, seed=1), str(run))


def test_the_best_of_a_smaller_grid_gives_its_model_again(tiny_run, tmp_path, capsys):
    run, grid = tmp_path / "run", dict(learning_rate=(1e-5, 1e-2))
    assert finetune.run(_cola(tiny_run, tmp_path, grid=grid), str(run)) == 0
    low, high = _results(run)["trials"]
    assert low["value"] < high["value"] and _results(run)["chosen"]["learning_rate"] == 1e-2
    capsys.readouterr()
    smaller = _cola(tiny_run, tmp_path, grid=dict(learning_rate=(1e-5,)))
    assert finetune.run(smaller, str(run)) == 0
    assert "once more, for its model" in capsys.readouterr().out
    assert _results(run)["dev"] == low["dev"]
    assert finetune.run(smaller, str(run)) == 0
    assert "once more" not in capsys.readouterr().out


def test_a_trial_that_diverges_once_more_hands_in_nothing(tiny_run, tmp_path, monkeypatch):
    run, rates = tmp_path / "run", (1e-5, 1e-2)
    config = _cola(tiny_run, tmp_path, grid=dict(learning_rate=rates))
    assert finetune.run(config, str(run)) == 0

    def diverge(trials, trial, folder):
        checkpoints_folder(folder).mkdir()
        raise NonFiniteLoss("step 1")

    monkeypatch.setattr(Trials, "train", diverge)
    smaller = _cola(tiny_run, tmp_path, grid=dict(learning_rate=rates[:1]))
    with pytest.raises(InputError, match="rate1e-05-.*and diverged now: remove the folder"):
        finetune.run(smaller, str(run))
    assert not (run / "results.json").exists()


@contextlib.contextmanager
def _signal_at(step, monkeypatch):
    """Inside, SIGTERM comes when the line of this step has been written."""
    real = Journal.write

    def write(journal, at, split, metrics):
        real(journal, at, split, metrics)
        if at == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "write", write)
        yield


@pytest.mark.parametrize("step", [4, 8])  # within, and at the last
def test_a_signal_stops_a_trial_and_it_goes_on_exactly(
    tiny_run, tmp_path, monkeypatch, capsys, step
):
    grid = dict(restarts=2)
    config = _cola(tiny_run, tmp_path, grid=grid, intervals=dict(log=2, checkpoint=100))
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert finetune.run(config, str(whole)) == 0
    capsys.readouterr()
    with _signal_at(step, monkeypatch):
        assert finetune.run(config, str(run)) == 75
    assert "trial 2" not in capsys.readouterr().out
    assert not (run / "results.json").exists()
    assert finetune.run(config, str(run)) == 0
    assert "going on from step" in capsys.readouterr().out
    assert _without_clock(_results(run)) == _without_clock(_results(whole))
    one, two = (read_folder(each / "model", "model") for each in (run, whole))
    assert one.identity == two.identity
    assert np.array_equal(one.params["classifier"]["kernel"], two.params["classifier"]["kernel"])


def test_the_trial_that_is_run_once_more_goes_on_too(tiny_run, tmp_path, monkeypatch, capsys):
    run, both = tmp_path / "run", dict(learning_rate=(1e-5, 1e-2))
    every = dict(log=2, checkpoint=100)
    larger = _cola(tiny_run, tmp_path, grid=both, intervals=every)
    assert finetune.run(larger, str(run)) == 0
    low = _results(run)["trials"][0]
    smaller = _cola(tiny_run, tmp_path, grid=dict(learning_rate=(1e-5,)), intervals=every)
    with _signal_at(4, monkeypatch):
        assert finetune.run(smaller, str(run)) == 75
    capsys.readouterr()
    assert finetune.run(smaller, str(run)) == 0
    assert "going on from step" in capsys.readouterr().out
    assert _results(run)["dev"] == low["dev"]
    assert not list((run / "trials").rglob("checkpoints"))


def test_what_is_only_predicted_may_come_later(tiny_run, tmp_path, capsys):
    """Or change, or be lost: it is predicted by the model that is there."""
    config, run = _cola(tiny_run, tmp_path), tmp_path / "run"
    test, written = tmp_path / "data" / "CoLA" / "test.tsv", run / "predictions" / "CoLA.tsv"
    text = test.read_text()
    test.unlink()
    assert finetune.run(config, str(run)) == 0
    assert not written.exists()
    for rows in (13, 14):
        test.write_text(text if rows == 13 else f"{text}13\tmoo\n")
        assert finetune.run(config, str(run)) == 0
        assert len(written.read_text().splitlines()) == rows + 1
    shutil.rmtree(run / "predictions")
    capsys.readouterr()
    assert finetune.run(config, str(run)) == 0
    assert len(written.read_text().splitlines()) == 15
    assert "trial 1" not in capsys.readouterr().out


def test_a_finished_command_only_tells_what_it_found(tiny_run, tmp_path, capsys):
    config, run = _cola(tiny_run, tmp_path), tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "chosen: " in line]
    handed_in = (run / "predictions" / "CoLA.tsv").stat().st_mtime_ns
    assert finetune.run(config, str(run)) == 0
    output = capsys.readouterr()
    assert [line for line in output.out.splitlines() if "chosen: " in line] == told
    assert told[0].startswith("chosen: batch16-rate0.01-epochs2-seed0: dev: matthews ")
    assert "predicting" not in output.err
    assert (run / "predictions" / "CoLA.tsv").stat().st_mtime_ns == handed_in


def _edit(path, change):
    path.write_text(change(path.read_text()))


def test_other_labels_of_dev_are_other_data(tiny_run, tmp_path):
    run, config = tmp_path / "run", _cola(tiny_run, tmp_path)
    assert finetune.run(config, str(run)) == 0
    flipped = str.maketrans({"0": "1", "1": "0"})
    _edit(
        tmp_path / "data" / "CoLA" / "dev.tsv",
        lambda text: "".join(
            "\t".join([a, b.translate(flipped), *rest])
            for a, b, *rest in (line.split("\t") for line in text.splitlines(keepends=True))
        ),
    )
    with pytest.raises(InputError, match="was run with another dev"):
        finetune.run(config, str(run))


def test_a_bad_line_to_be_predicted_is_found_before_training(tiny_run, tmp_path):
    config = _cola(tiny_run, tmp_path)
    _edit(tmp_path / "data" / "CoLA" / "test.tsv", lambda text: text + "13\n")
    with pytest.raises(InputError, match="test.tsv line 15: 1 columns"):
        finetune.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_weights_that_read_left_to_right_are_refused(left_to_right_run, tmp_path):
    with pytest.raises(InputError, match="reads left to right"):
        finetune.run(_cola(left_to_right_run, tmp_path), str(tmp_path / "run"))


def test_other_data_or_another_config_is_refused(tiny_run, tmp_path):
    run = tmp_path / "run"
    config = _cola(tiny_run, tmp_path)
    assert finetune.run(config, str(run)) == 0
    with pytest.raises(InputError, match=r"max_length was 48, is 40"):
        finetune.run(_cola(tiny_run, tmp_path, max_length=40), str(run))
    shutil.rmtree(tmp_path / "data")
    task_files.write_cola(tmp_path / "data", rows=64, seed=1)
    with pytest.raises(InputError, match="was run with another train"):
        finetune.run(config, str(run))


# --------------------------------------------------------------------- what goes wrong


def test_degenerate_and_diverged_trials_are_flagged(tiny_run, tmp_path):
    grid = dict(learning_rate=(0.5, 1e30))
    config = _cola(tiny_run, tmp_path, grid=grid, optimizer=dict(clip_norm=1e30))
    assert finetune.run(config, str(tmp_path / "run")) == 0
    constant, diverged = _results(tmp_path / "run")["trials"]
    assert constant["degenerate"].startswith("all are '")
    assert diverged["degenerate"].startswith("diverged: step ") and diverged["value"] is None
    summary = _results(tmp_path / "run")["summary"]
    assert [row["degenerate"] for row in summary] == [1, 1]
    assert [row["scored"] for row in summary] == [1, 0]
    assert summary[0]["dev"]["dev"]["accuracy"] == {
        "mean": constant["dev"]["dev"]["accuracy"],
        "deviation": None,
    }
    assert (summary[1]["mean"], summary[1]["dev"]) == (None, {})


def test_means_are_over_what_all_trials_have():
    """Of the same examples; and the F1 of a type that only one trial predicted has no mean."""

    def result(f1, mismatched, **more):
        dev = {"dev": {"f1": f1, **more}, "dev_mismatched": {"f1": f1}}
        return {"dev": dev, "data": {"train": "a", "dev_mismatched": mismatched}}

    spreads = _spreads([result(1.0, "b", f1_LOC=3.0), result(2.0, "c")])
    assert spreads == {"dev": {"f1": {"mean": 1.5, "deviation": pytest.approx(0.5**0.5)}}}
    assert set(_spreads([result(1.0, "b"), result(2.0, "b")])) == {"dev", "dev_mismatched"}
    assert _spreads([]) == {}


def test_means_are_over_the_trials_with_a_score(tiny_run, tmp_path):
    config = _cola(tiny_run, tmp_path, grid=dict(restarts=3))
    assert finetune.run(config, str(tmp_path / "run")) == 0
    (row,) = _results(tmp_path / "run")["summary"]
    for metric, spread in row["dev"]["dev"].items():
        values = [trial["dev"]["dev"][metric] for trial in _results(tmp_path / "run")["trials"]]
        assert spread["mean"] == pytest.approx(np.mean(values))
        assert spread["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert row["mean"] == row["dev"]["dev"]["matthews"]["mean"]
    assert (row["restarts"], row["scored"]) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(init_from=""), "config.init_from is empty"),
        (dict(max_length=65), "config.max_length=65: must be from 8 to 64"),
        (dict(task=dict(kind="glow")), "config.task.kind='glow': must be one of glue"),
        (dict(task=dict(kind="glue", name="MRP")), "must be one of CoLA"),
        (dict(grid=dict(batch_size=())), "config.grid: batch_size=()"),
        (dict(grid=dict(batch_size=(12,))), "a batch of 12 sequences does not divide"),
        (dict(grid=dict(restarts=0)), "config.grid: restarts=0"),
        (dict(accumulate=3), "does not divide into config.accumulate=3"),
        (dict(optimizer=dict(warmup_proportion=1.5)), "warmup_proportion=1.5"),
        (dict(intervals=dict(log=0)), "config.intervals: log=0"),
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


def test_grid_accepts_single_numbers(tiny_run, tmp_path):
    config = _cola(tiny_run, tmp_path)
    config = config.to_dict() | {"grid": dict(batch_size=8, learning_rate=1e-3, epochs=2)}
    (trial,) = TaskRecipe.from_config(config).trials()
    assert (trial.batch_size, trial.learning_rate, trial.epochs, trial.seed) == (8, 1e-3, 2, 0)


def test_each_split_is_read_once(tmp_path, monkeypatch):
    """The test file of column files too, of which it must be known whether it has tags."""
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


def test_a_config_of_features_is_for_another_door(tiny_run, tmp_path):
    config = ner_configs.get_config("features")
    config.data, config.init_from = str(task_files.write_conll(tmp_path / "data")), str(tiny_run)
    with pytest.raises(InputError, match="config.features: only launch/finetune_ner.py"):
        finetune.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
