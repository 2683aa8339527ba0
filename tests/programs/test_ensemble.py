"""Ensembles of fine-tuned runs: values by hand, files, new text, and bad runs"""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.programs import ensemble
from bertjax.runs.fine_tuning.answers import numbered, predictions
from bertjax.runs.fine_tuning.fine_tuned import OneModel, open_fine_tuned
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.runs.fine_tuning.resampling import SAMPLES, read_resampled
from bertjax.runs.run_folder import read_results, trial_folder
from bertjax.runs.source import open_model
from bertjax.tasks.entity_scores import entity_scores
from bertjax.tasks.glue import Glue
from bertjax.tasks.probabilities import BY
from bertjax.tasks.question_answering import NULL_THRESHOLD
from bertjax.tasks.squad_scores import exact_and_f1
from tests.helpers.built_once import REPOSITORY
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import SPEC, small_model
from tests.helpers.task_files import FAMILIES, write_cola


def _with_model(run: Path, folder: Path, model) -> Path:
    """A copy of a run in a new folder, with another model."""
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "model")
    (folder / "model").mkdir()
    write_hugging_face(model, folder / "model")
    return folder


def _another(run: Path, folder: Path) -> Path:
    """A copy of a run whose weights are changed at random, so that it predicts differently."""
    model, rng = read_hugging_face(run / "model", str(run)), np.random.default_rng(5)

    def changed(tree):
        if isinstance(tree, dict):
            return {name: changed(each) for name, each in tree.items()}
        return (tree + rng.normal(0, 0.2, tree.shape)).astype(np.float32)

    return _with_model(run, folder, dataclasses.replace(model, params=changed(model.params)))


@pytest.fixture(scope="module")
def members(fine_tuned, tmp_path_factory):
    """A function from a name of `FAMILIES` to its task, its run and a run of another model."""
    found = {}

    def get(name: str):
        if name not in found:
            config, run = fine_tuned(name)
            other = _another(run, tmp_path_factory.mktemp("another") / "run")
            found[name] = TaskRecipe.from_config(config).task, run, other
        return found[name]

    return get


def _run(runs, folder, by="probabilities"):
    """The results of an ensemble."""
    ensemble.run(list(map(str, runs)), str(folder), by)
    return read_results(folder)


def _predictions(run, examples):
    return OneModel(open_model(str(run))).predict(examples, "test")


def _rows(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]


# ------------------------------------------------------------------------------ what it gives


@pytest.mark.parametrize("name", others_slow(FAMILIES, "CoLA"))
def test_a_run_with_its_copy_gives_what_the_run_gave(fine_tuned, tmp_path, name):
    _, run = fine_tuned(name)
    copy = shutil.copytree(run, tmp_path / "copy")
    results, alone = _run([run, copy], tmp_path / "both"), read_results(run)
    assert (results["task"], results["metric"]) == (alone["task"], alone["metric"])
    assert results["init_from"] == alone["init_from"]
    assert [each["run"] for each in results["trials"]] == [str(run), str(copy)]
    for found in (results, *results["trials"]):
        assert found["dev"].keys() == alone["dev"].keys()
        for split, scores in alone["dev"].items():
            assert_close(found["dev"][split], scores)
        assert found["degenerate"] == alone["degenerate"]
    folders = tmp_path / "both", trial_folder(run, Trial(**alone["chosen"]).name)
    for split, scores in alone["dev"].items():
        for metric in scores:
            mine, reference = (read_resampled(folder, split, metric) for folder in folders)
            assert mine == pytest.approx(reference, abs=1e-2)
    assert results["predictions"].keys() == alone["predictions"].keys()
    for file in results["predictions"]:
        mine, reference = ((each / "predictions" / file) for each in (tmp_path / "both", run))
        if name in ("STS-B", "own numbers") or file.endswith(("nbest.json", "odds.json", ".jsonl")):
            continue  # these have numbers, which rounding changes
        assert mine.read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("by", others_slow(BY, "votes"))
def test_classes_by_hand(members, tmp_path, by):
    task, run, other = members("CoLA")
    dev, runs = task.read("dev"), (other, run)  # the second one is surer
    one, two = (np.stack(_predictions(each, dev)) for each in runs)
    assert (one.argmax(1) != two.argmax(1)).any()
    powers = np.sqrt(one * two)  # the exponential of the mean of the logarithms
    votes = np.eye(2)[one.argmax(1)] + np.eye(2)[two.argmax(1)]
    expected = {
        "probabilities": (one + two) / 2,
        "logits": powers / powers.sum(1, keepdims=True),
        "votes": (votes + (one + two) / 2) / 3,
    }[by]
    results = _run(runs, tmp_path / "both", by)
    chosen = [int(row[1]) for row in _rows(tmp_path / "both" / "predictions" / "CoLA-dev.tsv")]
    assert chosen == expected.argmax(1).tolist()
    gold = task.family.label_ids(dev)
    of_each = [each["dev"]["dev"]["accuracy"] for each in results["trials"]]
    assert of_each == pytest.approx([100 * np.mean(gold == p.argmax(1)) for p in (one, two)])
    accuracy = 100 * np.mean(gold == chosen)
    assert results["dev"]["dev"]["accuracy"] == pytest.approx(accuracy)
    assert len(_rows(tmp_path / "both" / "predictions" / "CoLA.tsv")) == len(task.read("test"))

    lines = [example.a for example in dev]
    found = list(
        predictions(open_fine_tuned(str(tmp_path / "both")), numbered(lines, "text"), "text")
    )
    shown = [list(each["probabilities"].values()) for each in found]
    assert_close(shown, expected)
    assert [task.family.classes.index(each["label"]) for each in found] == chosen


@pytest.mark.slow
def test_numbers_by_hand(members, tmp_path):
    task, run, other = members("STS-B")
    expected = np.mean([_predictions(each, task.read("dev")) for each in (run, other)], axis=0)
    _run([run, other], tmp_path / "both")
    written = [float(row[1]) for row in _rows(tmp_path / "both" / "predictions" / "STS-B-dev.tsv")]
    np.testing.assert_allclose(written, np.clip(expected, 0, 5), atol=6e-4)
    with pytest.raises(InputError, match="--by=votes: STS-B predicts numbers, which have no votes"):
        _run([run, other], tmp_path / "votes", "votes")
    assert not (tmp_path / "votes").exists()


@pytest.mark.slow
def test_labels_by_hand_of_members_that_learned_with_other_losses(members, tmp_path):
    """The thresholds are tuned for the mean; new text gets the labels that dev got."""
    task, run, other = members("own labels")
    config = json.loads((other / "config.json").read_text())
    config["task"] |= {"class_weights": "balanced", "focal_gamma": 2.0}
    (other / "config.json").write_text(json.dumps(config))
    dev = task.read("dev")
    mean = list(np.mean([_predictions(each, dev) for each in (run, other)], axis=0))
    results = _run([run, other], tmp_path / "both")
    settings = task.tune(dev, mean)
    assert_close(results["settings"]["thresholds"], settings["thresholds"], size=1.0)
    assert results["dev"]["dev"] == pytest.approx(task.score(dev, mean, settings))
    lines = [example.a for example in dev]
    model = open_fine_tuned(str(tmp_path / "both"))
    found = list(predictions(model, numbered(lines, "text"), "text"))
    chosen = task.family.chosen(mean, settings)
    assert [each["labels"] for each in found] == [
        list(np.array(["HIGH", "LOW"])[c]) for c in chosen
    ]


def test_members_may_read_pairs_by_other_output_layers():
    tasks = [Glue("here", "MRPC"), Glue("there", "MRPC", answer_steps=3, answer_dropout=0.2)]
    members = [SimpleNamespace(run=task.data, task=task) for task in tasks]
    assert ensemble._common_task(members) is tasks[0]
    members[1].task = Glue("there", "RTE")
    with pytest.raises(InputError, match="there: config.task.name is 'RTE', in here it is 'MRPC'"):
        ensemble._common_task(members)


@pytest.mark.slow
def test_tags_of_members_with_other_encoders_and_vocabularies(members, vocabulary, tmp_path):
    """The third member has other sizes, and windows of 13 tokens."""
    task, run, other = members("NER")
    task_of_run = open_model(str(run)).task
    third = small_model(vocabulary, "BertForTokenClassification", SPEC, task.family.classes)
    third = dataclasses.replace(third, task=dict(task_of_run) | {"max_length": 13})
    third = _with_model(run, tmp_path / "third", third)
    dev = task.read("dev")
    each = [_predictions(member, dev) for member in (run, other, third)]
    means = [sum(words) / 3 for words in zip(*each, strict=True)]
    expected = [tuple(task.family.classes[n] for n in words.argmax(1)) for words in means]
    results = _run([run, other, third], tmp_path / "three")
    text = (tmp_path / "three" / "predictions" / "ner-dev.txt").read_text(encoding="utf-8")
    rows = [line.split(" ") for line in text.splitlines() if line and "-DOCSTART-" not in line]
    assert [row[2] for row in rows] == [tag for tags in expected for tag in tags]
    gold = [sentence.tags for sentence in dev]
    assert results["dev"]["dev"] == pytest.approx(entity_scores(gold, expected))
    assert len({each["dev"]["dev"]["f1"] for each in results["trials"]}) == 3

    # New text has no documents around it.
    line = " ".join(dev[0].words)
    (found,) = predictions(
        open_fine_tuned(str(tmp_path / "three")), numbered([line], "text"), "text"
    )
    alone = [dataclasses.replace(dev[0], document=0)]
    mean = sum(_predictions(member, alone)[0] for member in (run, other, third))
    assert tuple(found["tags"]) == task.family.tags(mean)


@pytest.mark.slow
def test_answers_by_hand_and_a_threshold_of_their_own(members, tmp_path):
    task, run, other = members("SQuAD 2.0")
    dev = task.read("dev")
    each = [_predictions(member, dev) for member in (run, other)]
    results = _run([run, other], tmp_path / "both")
    folder = tmp_path / "both" / "predictions"
    listed = json.loads((folder / "squad-dev-nbest.json").read_text(encoding="utf-8"))
    odds = json.loads((folder / "squad-dev-null_odds.json").read_text())
    handed_in = json.loads((folder / "squad-dev.json").read_text(encoding="utf-8"))
    threshold = results["settings"][NULL_THRESHOLD]
    assert threshold not in [member["settings"][NULL_THRESHOLD] for member in results["trials"]]
    scores = []
    for example, *spans in zip(dev, *each, strict=True):
        sums = {"": sum(prediction.null_probability for prediction in spans)}
        for span in (span for prediction in spans for span in prediction.answers):
            sums[span.text] = sums.get(span.text, 0.0) + span.probability
        no_answer, best = sums.pop(""), max(sums, key=sums.get)
        assert next(row["text"] for row in listed[example.id] if row["text"]) == best
        assert odds[example.id] == pytest.approx(np.log(no_answer / sums[best]), abs=1e-3)
        assert handed_in[example.id] == ("" if odds[example.id] > threshold else best)
        golds = [answer.text for answer in example.answers]
        scores.append(exact_and_f1(handed_in[example.id], golds, unanswerable=True))
    assert results["dev"]["dev"]["f1_tuned"] == pytest.approx(100 * np.mean(scores, axis=0)[1])
    draws = np.random.default_rng(len(dev)).integers(len(dev), size=(SAMPLES, len(dev)))
    resampled = read_resampled(tmp_path / "both", "dev", "f1_tuned")
    assert resampled == pytest.approx(100 * np.array(scores)[draws].mean(1)[:, 1], abs=1e-3)
    assert len(set(resampled)) > 5  # not all are 100, which any sample of a perfect model has

    model = open_fine_tuned(str(tmp_path / "both"))
    lines = [json.dumps({"question": e.question, "context": e.context}) for e in dev]
    found = list(predictions(model, numbered(lines, "text"), "text"))
    assert [each["answer"] for each in found] == [handed_in[example.id] for example in dev]


# --------------------------------------------------------------------------------- going on


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_it_is_finished_once_and_goes_on_after_a_stop(members, tmp_path, monkeypatch, capsys):
    _, run, other = members("CoLA")
    write = Glue.write

    def stopped(task, folder, split, *rest):
        if split == "test":
            raise KeyboardInterrupt
        write(task, folder, split, *rest)

    folder = tmp_path / "both"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Glue, "write", stopped)
        _run([run, other], folder)
    assert not (folder / "results.json").exists()
    with pytest.raises(InputError, match="both: it is not finished: start it again"):
        open_fine_tuned(str(folder))
    results = _run([run, other], folder)
    _run([run, other], tmp_path / "again")
    assert _files(folder) == _files(tmp_path / "again")

    said, known = capsys.readouterr().out.splitlines()[-5:], _files(folder)
    for file in ("predictions/CoLA.tsv", "resampled.json"):
        (folder / file).write_text("damaged")
        assert _run([run, other], folder) == results and _files(folder) == known
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(OneModel, "predict", None)  # nothing is computed
        _run([run, other], folder)
    assert capsys.readouterr().out.splitlines() == [
        line.replace(str(tmp_path / "again"), str(folder)) for line in said
    ]
    with pytest.raises(InputError, match="ensemble.by was 'probabilities', is 'votes': choose"):
        _run([run, other], folder, "votes")
    with pytest.raises(InputError, match="ensemble.runs was .* choose another --workdir"):
        _run([other, run], folder)


def test_members_that_change_or_disappear(members, tmp_path):
    _, run, other = members("CoLA")
    mine = shutil.copytree(other, tmp_path / "mine")
    folder = tmp_path / "both"
    _run([run, mine], folder)
    shutil.rmtree(mine)
    _another(other, mine)
    with pytest.raises(InputError, match="both: its member .*/mine has another model since"):
        open_fine_tuned(str(folder))
    with pytest.raises(InputError, match="was made with another model of .*/mine, which"):
        _run([run, mine], folder)
    shutil.rmtree(mine)
    with pytest.raises(InputError, match="both: of its members: .*/mine: not a run"):
        open_fine_tuned(str(folder))
    with pytest.raises(InputError, match="an ensemble of fine-tuned runs, which launch/predict.py"):
        open_model(str(folder))
    _edited(folder / "results.json", chosen={"by": "other"})
    with pytest.raises(InputError, match="both: its results.json is damaged: make the ensemble"):
        open_fine_tuned(str(folder))
    _edited(folder / "results.json", trials=[{"run": str(run)}])
    with pytest.raises(InputError, match="results.json: damaged ."):
        open_fine_tuned(str(folder))


# ------------------------------------------------------------------------- runs that do not fit


def _edited(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _other_data(run: Path) -> None:
    trial = next((run / "trials").glob("*/results.json"))
    data = json.loads(trial.read_text())["data"]
    _edited(trial, data=data | {"train": "0" * 64})


def _other_order(run: Path) -> None:
    file = run / "model" / "config.json"
    names = json.loads(file.read_text())["id2label"]
    _edited(file, id2label={"0": names["1"], "1": names["0"]})


@pytest.mark.parametrize(
    "change, message",
    [
        (_other_data, "was run with another train than is in .*data .its content differs.: name"),
        (_other_order, "its classes are acceptable, unacceptable, in this order; those"),
        (lambda run: (run / "results.json").unlink(), "it is not finished: start it again"),
        (lambda run: shutil.rmtree(run / "model"), "a run of fine-tuning without a model: no"),
        (lambda run: shutil.rmtree(run / "trials"), "is not finished: start it again"),
        (lambda run: (run / "config.json").unlink(), "not a run: it has no config.json"),
        (lambda run: _edited(run / "config.json", task={"kind": "glue", "name": "SST-2"}),
         "config.task.name is 'SST-2', in .* it is 'CoLA': an ensemble is of one task"),
        (lambda run: _edited(run / "config.json", task={"kind": "swag"}),
         "its task is SWAG, that of .* is CoLA: an ensemble is of one task"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_fit(members, tmp_path, monkeypatch, change, message):
    _, run, other = members("CoLA")
    copy = shutil.copytree(other, tmp_path / "copy")
    change(copy)
    monkeypatch.setattr(OneModel, "predict", None)  # nothing is computed
    with pytest.raises(InputError, match=f"^{copy}.*: .*{message}") as caught:
        _run([run, copy], tmp_path / "both")
    assert "\n" not in str(caught.value) and not (tmp_path / "both").exists()


def test_names_that_do_not_fit(members, tiny_run, tmp_path, monkeypatch):
    _, run, other = members("CoLA")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(run)
    for runs, message in (
        ([run], f"--runs={run}: name two runs or more, with commas between"),
        ([run, other, "link"], f"--runs: {run} is named 2 times: name each run once"),
        ([run, tiny_run], f"{tiny_run}: not a run of fine-tuning: name folders of launch/finetune"),
        ([run, "absent"], "absent: not a run: it has no config.json"),
        ([run, "gs://bucket/run"], "gs://bucket/run: not a folder; mount the bucket"),
    ):
        with pytest.raises(InputError, match=message):
            _run(runs, tmp_path / "both")
    with pytest.raises(InputError, match="--workdir is empty"):
        ensemble.run([str(run), str(other)], "", "votes")
    with pytest.raises(InputError, match="holds a run with another config: "):
        _run([run, other], shutil.copytree(run, tmp_path / "taken"))
    assert not (tmp_path / "both").exists()


def test_data_that_have_changed_since(members, fine_tuned, tmp_path):
    _, run, other = members("CoLA")
    copy, data = shutil.copytree(run, tmp_path / "copy"), write_cola(tmp_path / "data", seed=1)
    _edited(copy / "config.json", data=str(data))
    with pytest.raises(InputError, match=f"{copy}: was run with another train than is in {data}"):
        _run([copy, other], tmp_path / "both")


def test_the_door_names_every_way():
    text = (REPOSITORY / "launch" / "ensemble.py").read_text(encoding="utf-8")
    assert json.dumps(list(BY)) in text
