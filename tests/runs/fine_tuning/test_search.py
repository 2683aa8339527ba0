"""The search in a grid: which trials run again, what is kept and printed; its trials are toys."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.runs.fine_tuning.search import NothingScored, _spreads
from bertjax.runs.run_folder import checkpoints_folder, read_results, read_trial
from bertjax.training.metrics_log import METRICS_FILE, read_metrics
from tests.helpers import task_files
from tests.helpers.slow_cases import others_slow
from tests.runs.fine_tuning.toy_trials import LEARNS, TOO_HIGH, TOO_LOW, toy_recipe, toy_search

ROWS = 61  # for training: four batches of 16, the last of which is partial


@pytest.fixture
def data(tmp_path):
    return task_files.write_cola(tmp_path / "data", rows=ROWS)


@pytest.fixture
def search(data, tmp_path):
    """A function from (name of a run, grid) to a new search, its trials and its model."""

    def begin(run: str = "run", weights: str = "the same", **grid):
        return toy_search(toy_recipe(data, grid=grid), tmp_path / run, weights)

    return begin


@pytest.fixture
def run(tmp_path):
    """The folder of the run with the usual name."""
    return tmp_path / "run"


def _without_clock(results):
    trials = [trial | {"seconds": None} for trial in results["trials"]]
    return results | {"trials": trials}


def _names(rates=(LEARNS,), epochs=(2,), restarts=1) -> list[str]:
    """The trials of a grid, in their order."""
    return [
        f"batch16-rate{rate:g}-epochs{number}-seed{seed}"
        for rate in rates
        for number in epochs
        for seed in range(restarts)
    ]


# ------------------------------------------------------------------------------ what it gives


def test_all_are_tried_and_the_best_is_kept(search, run):
    grid = dict(learning_rate=(LEARNS, TOO_LOW), epochs=(1, 3))
    one, trials, kept = search(**grid)
    results = one.complete()
    assert trials.trained == _names(rates=(LEARNS, TOO_LOW), epochs=(1, 3))
    assert results == read_results(run)
    assert (results["task"], results["metric"]) == ("CoLA", "matthews")
    values = [trial["value"] for trial in results["trials"]]
    assert len(values) == 4 and len(set(values)) > 1
    best = results["trials"][int(np.argmax(values))]
    assert {key: best[key] for key in results["chosen"]} == results["chosen"]
    assert results["dev"] == best["dev"]
    assert best["value"] == best["dev"]["dev"]["matthews"] and best["degenerate"] == ""
    assert kept.trial() == trials.trained[int(np.argmax(values))]
    assert not list((run / "trials").rglob("checkpoints"))


def test_every_trial_has_what_it_gave_in_its_own_folder(search, run):
    one, trials, _ = search(learning_rate=(LEARNS, TOO_HIGH), restarts=2)
    results = one.complete()
    for name, reported in zip(trials.trained, results["trials"], strict=True):
        own = read_trial(run / "trials" / name)
        assert own.pop("data").keys() == {"weights", "train", "dev", "test"}
        assert own == reported
        assert (reported["seconds"] is None) == (reported["value"] is None)


def test_the_scores_are_those_of_the_predictions(search, run):
    """The file of predictions gives the score that is printed."""
    one, trials, _ = search(restarts=3)
    results = one.complete()
    lines = (run / "predictions" / "CoLA-dev.tsv").read_text().splitlines()[1:]
    predicted, gold = zip(*(line.split("\t")[1:] for line in lines), strict=True)
    accuracy = 100 * np.mean([a == b for a, b in zip(predicted, gold, strict=True)])
    assert len(lines) == 51 and 50 < accuracy < 100
    assert results["dev"]["dev"]["accuracy"] == pytest.approx(accuracy)
    # Each model predicts a split once.
    assert trials.predicted == ["dev"] * 3 + ["test"]
    assert len((run / "predictions" / "CoLA.tsv").read_text().splitlines()) == 14


def test_the_stored_model_predicts_what_it_did_in_training(search, run):
    search(restarts=2)[0].complete()
    dev = run / "predictions" / "CoLA-dev.tsv"
    before = dev.read_bytes()
    dev.unlink()
    again, trials, _ = search(restarts=2)
    again.complete()
    assert dev.read_bytes() == before
    assert (trials.trained, trials.predicted) == ([], ["dev", "test"])


def test_the_metrics_of_all_trials_are_in_one_file(search, run):
    one, trials, _ = search(learning_rate=(LEARNS, TOO_HIGH), epochs=(3,))
    learned, diverged = one.complete()["trials"]
    rows = read_metrics(run)
    first = [row for row in rows if row["trial"] == trials.trained[0]]
    second = [row for row in rows if row["trial"] == trials.trained[1]]
    assert first + second == rows
    assert [row["step"] for row in first] == [*range(1, 13), 12]
    assert [row["split"] for row in first] == ["train"] * 12 + ["dev"]
    assert first[-2]["loss"] < first[0]["loss"]
    assert {key: first[-1][key] for key in learned["dev"]["dev"]} == learned["dev"]["dev"]
    assert diverged["degenerate"].startswith(f"diverged: step {len(second) + 1}: ")
    assert {row["split"] for row in second} == {"train"}


def test_planned_trials_are_printed(search, capsys):
    search(restarts=3)[0].announce()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("CoLA: 61 training sequences of ")
    assert printed[0].endswith("to score: 51 dev")
    assert printed[1].startswith("17 parameters; microbatches of 16 x 8, 16 tokens, ")
    assert printed[2] == "3 trials, the first of 8 steps"


# --------------------------------------------------------------------------- going on


def test_trials_that_are_done_are_not_run_again(search, run, tmp_path, capsys):
    once = search("once", restarts=3)[0].complete()
    search()[0].complete()
    first = run / "trials" / _names()[0] / "results.json"
    written = first.stat().st_mtime_ns
    capsys.readouterr()
    one, trials, kept = search(restarts=3)
    results = one.complete()
    assert trials.trained == _names(restarts=3)[1:]
    output = capsys.readouterr().out
    assert "trial 1 of 3" not in output and "trial 3 of 3" in output
    assert first.stat().st_mtime_ns == written
    assert results == read_results(run)
    assert _without_clock(results) == _without_clock(once)
    _assert_same_model(run, tmp_path / "once")
    assert (tmp_path / "once" / METRICS_FILE).read_text() == (run / METRICS_FILE).read_text()
    seeds = [trial["dev"]["dev"] for trial in results["trials"]]
    assert len({json.dumps(each) for each in seeds}) > 1, "restarts differ"
    assert kept.trial() == _names(restarts=3)[int(np.argmax([s["matthews"] for s in seeds]))]


def _assert_same_model(one: Path, two: Path):
    a, b = (np.load(each / "model" / "model.npy") for each in (one, two))
    assert np.array_equal(a, b)
    about = [(each / "model" / "trial.json").read_text() for each in (one, two)]
    assert about[0] == about[1]


# Steps within each of three trials of eight steps, and the last step of each.
@pytest.mark.parametrize("steps", others_slow([1, 4, 8, 9, 16, 21, 24], 1, 16, 21))
def test_a_signal_stops_a_trial_and_it_goes_on_exactly(search, run, tmp_path, capsys, steps):
    whole = search("whole", restarts=3)[0].complete()
    capsys.readouterr()
    names, under_way = _names(restarts=3), (steps - 1) // 8
    one, trials, _ = search(restarts=3)
    trials.stop = steps
    assert one.complete() is None
    assert trials.trained == names[: under_way + 1]
    output = capsys.readouterr().out
    assert f"trial {under_way + 1} of 3" in output and f"trial {under_way + 2}" not in output
    assert not (run / "results.json").exists()
    left = [folder.parent.name for folder in (run / "trials").rglob("checkpoints")]
    assert left == [names[under_way]]
    one, trials, _ = search(restarts=3)
    results = one.complete()
    assert trials.trained == names[under_way:]
    assert f"going on from step {steps - 8 * under_way}\n" in capsys.readouterr().out
    assert results == read_results(run)
    assert _without_clock(results) == _without_clock(whole)
    assert results["trials"][under_way]["seconds"] is None  # the earlier time is unknown
    _assert_same_model(run, tmp_path / "whole")
    assert (tmp_path / "whole" / METRICS_FILE).read_text() == (run / METRICS_FILE).read_text()
    assert not list((run / "trials").rglob("checkpoints"))


def test_one_that_is_cut_off_behind_its_results_is_done(search, run):
    """If the stored model was not complete, its trial is run again to make it."""
    whole = search(restarts=3)[0].complete()
    checkpoints_folder(run / "trials" / _names()[0]).mkdir()
    one, trials, _ = search(restarts=3)
    assert one.complete() == whole and not trials.trained
    assert not list((run / "trials").rglob("checkpoints"))
    shutil.rmtree(run / "model")
    (run / "results.json").unlink()
    one, trials, kept = search(restarts=3)
    assert one.complete() == whole
    assert trials.trained == [kept.trial()]


@pytest.mark.parametrize("damage", ["", "null", "[]", "{}", "[" * 100_000])
def test_damaged_results(search, run, damage):
    search()[0].complete()
    trial = run / "trials" / _names()[0] / "results.json"
    for path in (run / "results.json", trial):
        content = path.read_bytes()
        path.write_text(damage)
        hint = f"{path}: damaged .*: remove it, and the same command makes it again"
        with pytest.raises(InputError, match=hint):
            search()[0].complete()
        path.write_bytes(content)
    results = read_results(run)
    (run / "results.json").write_text(json.dumps(results | {"summary": [{}]}))
    assert search()[0].complete() == results


def test_of_equal_ones_the_first_is_kept(search):
    """No other trial is run again to make a model."""
    one, trials, kept = search(learning_rate=(TOO_LOW, TOO_LOW / 10))
    low, lower = one.complete()["trials"]
    assert low["value"] == lower["value"]
    assert kept.trial() == trials.trained[0] and len(trials.trained) == 2
    one, trials, kept = search(learning_rate=(TOO_LOW / 10, TOO_LOW))
    one.complete()
    assert not trials.trained


def test_a_smaller_grid_with_the_same_best_is_reported_without_the_others(search, run):
    larger = search(learning_rate=(LEARNS, TOO_LOW))[0].complete()
    one, trials, _ = search(learning_rate=(LEARNS,))
    results = one.complete()
    assert not trials.trained and results == read_results(run)
    assert results["trials"] == larger["trials"][:1]
    assert results["summary"] == larger["summary"][:1]
    assert {line["trial"] for line in read_metrics(run)} == set(_names())


def test_the_best_of_a_smaller_grid_gives_its_model_again(search, run, capsys):
    search(learning_rate=(TOO_LOW, LEARNS))[0].complete()
    low, high = read_results(run)["trials"]
    assert low["value"] < high["value"] and read_results(run)["chosen"]["learning_rate"] == LEARNS
    name = _names(rates=(TOO_LOW,))[0]
    own = run / "trials" / name / "results.json"
    written = own.stat().st_mtime_ns
    capsys.readouterr()
    one, trials, kept = search(learning_rate=(TOO_LOW,))
    one.complete()
    assert trials.trained == [name] == [kept.trial()]
    assert "once more, for its model" in capsys.readouterr().out
    assert read_results(run)["dev"] == low["dev"]
    assert own.stat().st_mtime_ns == written, "the figures of the first time stay"
    one, trials, _ = search(learning_rate=(TOO_LOW,))
    one.complete()
    assert not trials.trained
    assert "once more" not in capsys.readouterr().out


@pytest.mark.parametrize("steps", [4, 8])
def test_the_trial_that_is_run_once_more_goes_on_too(search, run, capsys, steps):
    search(learning_rate=(TOO_LOW, LEARNS))[0].complete()
    low = read_results(run)["trials"][0]
    one, trials, _ = search(learning_rate=(TOO_LOW,))
    trials.stop = steps
    assert one.complete() is None
    assert not (run / "results.json").exists()
    capsys.readouterr()
    one, _, kept = search(learning_rate=(TOO_LOW,))
    one.complete()
    assert f"going on from step {steps}\n" in capsys.readouterr().out
    assert read_results(run)["dev"] == low["dev"]
    assert kept.trial() == _names(rates=(TOO_LOW,))[0]
    assert not list((run / "trials").rglob("checkpoints"))


def test_a_grid_without_the_trial_of_the_model_gives_a_warning(search, run, capsys):
    search(learning_rate=(TOO_LOW, LEARNS))[0].complete()
    one, _, kept = search(learning_rate=(TOO_LOW,))
    capsys.readouterr()
    one.announce()
    warnings = capsys.readouterr().out.splitlines()[3:]
    (name,) = _names(rates=(LEARNS,))
    assert [line.partition(": the best model of")[0] for line in warnings] == [
        f"warning: the model in {run} is of {name}, which is not in the grid"
    ]
    one, _, _ = search(learning_rate=(LEARNS, TOO_LOW / 10))
    one.announce()
    assert "warning" not in capsys.readouterr().out


def test_a_trial_that_diverges_again_writes_nothing(search, run):
    search(learning_rate=(TOO_LOW, LEARNS))[0].complete()
    one, trials, _ = search(learning_rate=(TOO_LOW,))
    trials.diverging = set(_names(rates=(TOO_LOW,)))
    with pytest.raises(InputError, match="rate1e-05-.*and diverged now: remove the folder"):
        one.complete()
    assert not (run / "results.json").exists()


# ----------------------------------------------------------------------- what is there already


def test_what_is_only_predicted_may_come_later(search, data, run, capsys):
    """Such a split may also change or be deleted; the stored model predicts it."""
    test, written = data / "CoLA" / "test.tsv", run / "predictions" / "CoLA.tsv"
    text = test.read_text()
    test.unlink()
    dev = search()[0].complete()["dev"]
    assert not written.exists()
    capsys.readouterr()
    for rows in (13, 14):
        test.write_text(text if rows == 13 else f"{text}13\tmoo\n")
        assert search()[0].complete()["dev"] == dev
        assert len(written.read_text().splitlines()) == rows + 1
    handed_in = written.read_text()
    shutil.rmtree(run / "predictions")
    one, trials, _ = search()
    one.complete()
    assert not trials.trained
    assert written.read_text() == handed_in
    assert len(written.read_text().splitlines()) == 15
    assert "trial 1" not in capsys.readouterr().out


def test_a_finished_command_only_tells_what_it_found(search, run, capsys):
    results = search()[0].complete()
    printed = [line for line in capsys.readouterr().out.splitlines() if "chosen: " in line]
    handed_in = (run / "predictions" / "CoLA.tsv").stat().st_mtime_ns
    one, trials, _ = search()
    assert one.complete() == results
    output = capsys.readouterr()
    assert [line for line in output.out.splitlines() if "chosen: " in line] == printed
    assert printed[0].startswith("chosen: batch16-rate1-epochs2-seed0: dev: matthews ")
    assert "predicting" not in output.err and not trials.predicted and not trials.trained
    assert (run / "predictions" / "CoLA.tsv").stat().st_mtime_ns == handed_in


@pytest.mark.parametrize(
    "name", ["predictions/CoLA.tsv", "predictions/CoLA-dev.tsv", METRICS_FILE, "results.json"]
)
def test_a_finished_command_makes_what_was_damaged_again(search, run, name):
    results = search()[0].complete()
    content = (run / name).read_bytes()
    changed = json.dumps(results | {"metric": "other"}) if name == "results.json" else ""
    (run / name).write_text(changed)
    one, trials, _ = search()
    assert one.complete() == results
    assert (run / name).read_bytes() == content and not trials.trained


def _flip_labels(dev: Path):
    flipped = str.maketrans({"0": "1", "1": "0"})
    rows = [line.split("\t") for line in dev.read_text().splitlines(keepends=True)]
    dev.write_text("".join("\t".join([a, b.translate(flipped), *rest]) for a, b, *rest in rows))


@pytest.mark.parametrize("what", ["dev", "train", "weights"])
def test_other_data_and_other_weights_are_refused(search, data, what):
    search()[0].complete()
    if what == "dev":
        _flip_labels(data / "CoLA" / "dev.tsv")
    if what == "train":
        shutil.rmtree(data)
        task_files.write_cola(data, rows=ROWS, seed=1)
    with pytest.raises(InputError, match=f"was run with another {what}"):
        search(weights="others" if what == "weights" else "the same")


# --------------------------------------------------------------------- what goes wrong


def test_degenerate_and_diverged_trials_are_flagged(search):
    one, trials, _ = search(learning_rate=(TOO_LOW, TOO_HIGH))
    trials.shift = 9.0
    results = one.complete()
    constant, diverged = results["trials"]
    assert constant["degenerate"].startswith("all are '")
    assert diverged["degenerate"].startswith("diverged: step ") and diverged["value"] is None
    assert results["degenerate"] == constant["degenerate"]
    summary = results["summary"]
    assert [row["degenerate"] for row in summary] == [1, 1]
    assert [row["scored"] for row in summary] == [1, 0]
    assert summary[0]["dev"]["dev"]["accuracy"] == {
        "mean": constant["dev"]["dev"]["accuracy"],
        "deviation": None,
    }
    assert (summary[1]["mean"], summary[1]["dev"]) == (None, {})


def test_where_all_trials_diverge_nothing_is_written(search, run):
    one, trials, _ = search(learning_rate=(TOO_HIGH,), restarts=2)
    with pytest.raises(NothingScored, match=r"no trial gave a matthews \(diverged: step "):
        one.complete()
    assert len(trials.trained) == 2 and not (run / "results.json").exists()


def test_means_are_over_what_all_trials_have():
    """The examples must be the same; the F1 of a type that only one trial predicted has no mean."""

    def result(f1, mismatched, **more):
        dev = {"dev": {"f1": f1, **more}, "dev_mismatched": {"f1": f1}}
        return {"dev": dev, "data": {"train": "a", "dev_mismatched": mismatched}}

    spreads = _spreads([result(1.0, "b", f1_LOC=3.0), result(2.0, "c")])
    assert spreads == {"dev": {"f1": {"mean": 1.5, "deviation": pytest.approx(0.5**0.5)}}}
    assert set(_spreads([result(1.0, "b"), result(2.0, "b")])) == {"dev", "dev_mismatched"}
    assert _spreads([]) == {}


@pytest.mark.parametrize("diverging", [(), (1,)])
def test_means_are_over_the_trials_with_a_score(search, diverging):
    one, trials, _ = search(restarts=3)
    trials.diverging = {_names(restarts=3)[number] for number in diverging}
    results = one.complete()
    (row,) = results["summary"]
    scored = [trial for trial in results["trials"] if trial["value"] is not None]
    assert (row["restarts"], row["scored"]) == (3, 3 - len(diverging)) == (3, len(scored))
    assert row["degenerate"] == len(diverging)
    for metric, spread in row["dev"]["dev"].items():
        values = [trial["dev"]["dev"][metric] for trial in scored]
        assert spread["mean"] == pytest.approx(np.mean(values))
        assert spread["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert row["mean"] == row["dev"]["dev"]["matthews"]["mean"]
