"""SuperGLUE's tasks: official files in, official metrics, and the leaderboard's files out."""

import json
import re
import string
import zipfile
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import f1_score

from bertjax.base.errors import InputError
from bertjax.programs import finetune, finetune_task
from bertjax.tasks import superglue
from bertjax.tasks.superglue import SETS, SuperGlue, submission
from bertjax.tasks.task import TRAIN
from tests.helpers.task_files import tiny_finetuning

# Task -> a row as the download has it, with its label.
ROWS = {
    "BoolQ": {"question": "is é a", "passage": "É -- a b.", "idx": 7, "label": True},
    "CB": {"premise": "A b?", "hypothesis": "c", "label": "neutral", "idx": 7},
    "COPA": {
        **{"premise": "A.", "choice1": "B.", "choice2": "C.", "question": "cause"},
        **{"label": 1, "idx": 7},
    },
    "MultiRC": {
        "idx": 7,
        "version": 1.1,
        "passage": {
            "text": "A b.",
            "questions": [
                {
                    "question": "Who?",
                    "answers": [
                        {"text": "a", "idx": 0, "label": 0},
                        {"text": "b", "idx": 1, "label": 1},
                    ],
                    "idx": 12,
                },
                {"question": "Why?", "answers": [{"text": "c", "idx": 2, "label": 1}], "idx": 13},
            ],
        },
    },
    "ReCoRD": {
        "source": "Daily mail",
        "passage": {
            "text": "Moo met The Cow.\n@highlight\nMoo left",
            "entities": [
                {"start": 0, "end": 2},
                {"start": 8, "end": 14},
                {"start": 28, "end": 30},
            ],
        },
        "qas": [
            {
                "query": "@placeholder's calf",
                "answers": [{"start": 8, "end": 14, "text": "The Cow"}],
                "idx": 12,
            }
        ],
        "idx": 7,
    },
    "RTE": {"premise": "A b.", "hypothesis": "c", "label": "entailment", "idx": 7},
    "WiC": {
        **{"word": "run", "sentence1": "A run run.", "sentence2": "It ran", "idx": 7},
        **{"label": False, "start1": 6, "start2": 3, "end1": 9, "end2": 6, "version": 1.1},
    },
    "WSC": {
        "text": "Mark told Pete that  he, not Pete, won.",
        "target": {
            **{"span2_index": 4, "span1_index": 0, "span1_text": "Mark", "span2_text": "he,"},
        },
        **{"idx": 7, "label": True},
    },
}
_GAP = "Moo met The Cow.\n@highlight\nMoo left"
# Task -> the texts and the label of each example of that row.
READ = {
    "BoolQ": [("É -- a b.", "is é a", "true")],
    "CB": [("A b?", "c", "neutral")],
    "MultiRC": [("A b.", "Who? a", "0"), ("A b.", "Who? b", "1"), ("A b.", "Why? c", "1")],
    "ReCoRD": [(_GAP, "Moo's calf", "false"), (_GAP, "The Cow's calf", "true")],
    "RTE": [("A b.", "c", "entailment")],
    "WiC": [("A run * run *.", "It * ran *", "false")],
    "WSC": [("Mark told Pete that * he, * not Pete, won.", "Mark", "True")],
}
# Task -> the line of the leaderboard if the last class or choice has the highest probability.
WRITTEN = {
    "BoolQ": {"idx": 7, "label": "true"},
    "CB": {"idx": 7, "label": "neutral"},
    "COPA": {"idx": 7, "label": 1},
    "MultiRC": {
        "idx": 7,
        "passage": {
            "questions": [
                {"idx": 12, "answers": [{"idx": 0, "label": 1}, {"idx": 1, "label": 1}]},
                {"idx": 13, "answers": [{"idx": 2, "label": 1}]},
            ]
        },
    },
    "ReCoRD": {"idx": 12, "label": "The Cow"},
    "RTE": {"idx": 7, "label": "not_entailment"},
    "WiC": {"idx": 7, "label": "true"},
    "WSC": {"idx": 7, "label": "True"},
}


def _unlabelled(value):
    """A row as a test file has it."""
    if isinstance(value, list):
        return list(map(_unlabelled, value))
    if not isinstance(value, dict):
        return value
    hidden = {"label"} | ({"answers"} if "query" in value else set())
    return {key: _unlabelled(each) for key, each in value.items() if key not in hidden}


def _task(folder, name, *rows, file="train", **changes) -> SuperGlue:
    (folder / name).mkdir(exist_ok=True)
    rows = rows or (ROWS[name] | changes,)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name / f"{file}.jsonl").write_text(lines, encoding="utf-8")
    return SuperGlue(str(folder), name)


@pytest.mark.parametrize("name", SETS)
def test_official_rows(tmp_path, name):
    task = _task(tmp_path, name)
    assert task.test_splits == ()
    examples = task.read(TRAIN)
    unlabelled = _task(tmp_path, name, _unlabelled(ROWS[name]), file="test")
    assert unlabelled.test_splits == ("test",)
    tested = unlabelled.read("test")
    if name == "COPA":
        ((number, *texts, label, _),) = examples
        assert (number, texts) == ("7", ["A.", "What was the cause of this?", ("B.", "C.")])
        assert label == 1 and tested[0].label is None
        return
    assert [(each.a, each.b, each.label) for each in examples] == READ[name]
    assert [(each.a, each.b, each.label) for each in tested] == [
        (a, b, None) for a, b, _ in READ[name]
    ]
    alone = SuperGlue(str(tmp_path / name), name)  # the folder of this task
    assert alone.read("test") == tested and alone.family.label_ids(examples).size == len(examples)


DIAGNOSTICS = {
    "AX-b": {"sentence1": "É b.", "sentence2": "c", "idx": 3, "label": "entailment", "logic": "x"},
    "AX-g": {"premise": "A.", "hypothesis": "b", "idx": 5, "label": "entailment", "pair_id": 7},
}


def _write_diagnostics(folder) -> None:
    for name, row in DIAGNOSTICS.items():
        (folder / name).mkdir()
        (folder / name / f"{name}.jsonl").write_text(json.dumps(row) + "\n")


def test_the_diagnostic_sets(tmp_path):
    """The model of RTE predicts them; their labels are not read."""
    for name in ("RTE", "CB"):
        _task(tmp_path, name, _unlabelled(ROWS[name]), file="test")
    _write_diagnostics(tmp_path)
    assert SuperGlue(str(tmp_path), "CB").test_splits == ("test",)
    task = SuperGlue(str(tmp_path), "RTE")
    assert task.test_splits == ("test", "AX-b", "AX-g")
    for split, wanted in (("AX-b", ("3", "É b.", "c", None)), ("AX-g", ("5", "A.", "b", None))):
        examples = task.read(split)
        assert [tuple(each)[:4] for each in examples] == [wanted]
        task.write(tmp_path, split, examples, [np.array([0.4, 0.6])], {})
        line = json.loads((tmp_path / f"{split}.jsonl").read_text())
        assert line == {"idx": int(wanted[0]), "label": "not_entailment"}


@pytest.mark.parametrize("name", SETS)
def test_the_leaderboards_lines(tmp_path, name):
    examples = _task(tmp_path, name, _unlabelled(ROWS[name]), file="test").read("test")
    classes = len(SETS[name].classes) or 2
    rising = [np.linspace(number, number + 1, classes) for number in range(len(examples))]
    task = SuperGlue(str(tmp_path), name)
    task.write(tmp_path, "test", examples, rising, {})
    (line,) = (tmp_path / f"{name}.jsonl").read_text().splitlines()
    assert task.rows(examples) == 1
    assert json.loads(line) == WRITTEN[name]
    task.write(tmp_path, "dev", examples, rising, {})
    assert (tmp_path / f"{name}-dev.jsonl").read_text() == line + "\n"


def test_submission(tmp_path, monkeypatch):
    small = {key: (file, 2) for key, (file, _) in superglue.SUBMITTED.items()}
    monkeypatch.setattr(superglue, "SUBMITTED", small)
    names = [*list(SETS)[:6], "AX-b", "AX-g", "WiC", "WSC"]
    for name in names:
        (tmp_path / f"{name}.jsonl").write_text(f'{{"idx": 0}}\n{{"idx": "{name}"}}\n')
    runs = dict.fromkeys(SETS, tmp_path)
    submission(runs, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == [f"{name}.jsonl" for name in names]
        assert archive.read("WSC.jsonl") == b'{"idx": 0}\n{"idx": "WSC"}\n'
    (tmp_path / "CB.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="CB.jsonl: 1 predictions; the official test set has 2: p"):
        submission(runs, tmp_path / "b.zip")
    with pytest.raises(InputError, match="wants 10 files, and these are missing: BoolQ.jsonl, CB"):
        submission({name: tmp_path for name in SETS if name not in ("BoolQ", "CB")}, tmp_path / "b")
    assert not (tmp_path / "b.zip").exists()


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The tasks that are run of a folder with all of them, each with one row of test."""
    names = []
    for name in SETS:
        for file in ("train", "val"):
            _task(tmp_path, name, file=file)
        _task(tmp_path, name, _unlabelled(ROWS[name]), file="test")

    def run(config, workdir):
        names.append((config.task.name, workdir))
        return 75 if len(names) == len(SETS) else 0

    monkeypatch.setattr(finetune_task, "run", run)
    return names


def test_all_tasks_are_run_with_the_official_tests(tmp_path, monkeypatch, asked):
    task = dict(kind="superglue", name="all")
    config = tiny_finetuning("none", tmp_path, task=task)
    with pytest.raises(InputError, match="BoolQ test has 1 rows, but the official file has 3245: "):
        finetune.run(config, str(tmp_path / "run"))
    small = {key: (file, 1) for key, (file, _) in superglue.SUBMITTED.items()}
    monkeypatch.setattr(superglue, "SUBMITTED", small)
    with pytest.raises(InputError, match="RTE has no AX-b and no AX-g, which the leaderboard"):
        finetune.run(config, str(tmp_path / "run"))
    assert asked == []
    _write_diagnostics(tmp_path)
    assert finetune.run(config, str(tmp_path / "run")) == 75
    assert asked == [(name, str(tmp_path / "run" / name)) for name in SETS]


# ------------------------------------------------------------------------------- metrics


def _random(rows: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, classes))


@pytest.mark.parametrize("name", ["BoolQ", "CB", "COPA", "RTE", "WiC", "WSC"])
def test_metrics_of_single_examples(tmp_path, name):
    (example,) = _task(tmp_path, name).read(TRAIN)
    classes = SETS[name].classes or (0, 1)
    gold = np.random.default_rng(1).integers(len(classes), size=60)
    predictions = _random(60, len(classes))
    chosen = predictions.argmax(1)
    examples = [example._replace(label=classes[label]) for label in gold]
    task = SuperGlue("", name)
    found = task.score(examples, list(predictions), {})
    expected = {"accuracy": 100 * sum(gold == chosen) / 60}
    if name == "CB":
        of_each = [f1_score(gold == label, chosen == label) for label in range(3)]
        expected["macro_f1"] = 100 * sum(of_each) / 3
        expected["mean"] = sum(expected.values()) / 2
    assert found == pytest.approx(expected) and next(iter(found)) == task.metric


def test_metrics_of_multirc(tmp_path):
    (first, *_) = _task(tmp_path, "MultiRC").read(TRAIN)
    rng, examples = np.random.default_rng(2), []
    for question in range(20):
        for number in range(rng.integers(1, 4)):
            label = str(rng.integers(2))
            examples.append(first._replace(id=str(question), number=number, label=label))
    predictions = _random(len(examples), 2)
    chosen = predictions.argmax(1)
    gold = np.array([int(example.label) for example in examples])
    wrong = {each.id for each, a, b in zip(examples, gold, chosen, strict=True) if a != b}
    exact, f1 = 100 * (20 - len(wrong)) / 20, 100 * f1_score(gold, chosen)
    assert 0 < exact < 100
    found = SuperGlue("", "MultiRC").score(examples, list(predictions), {})
    assert found == pytest.approx({"mean": (exact + f1) / 2, "f1": f1, "exact": exact})


def _official_words(text: str) -> list[str]:
    """The words of an answer, as ReCoRD's evaluate.py compares them."""
    text = "".join(each for each in text.lower() if each not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def test_metrics_of_record(tmp_path):
    (first, _) = _task(tmp_path, "ReCoRD").read(TRAIN)
    asked = [
        (["The Cow", "Old Moo"], ("cow",)),
        (["Moo", "Moo Cow"], ("Old Moo Cow", "Pig")),
        (["Moo", "Cow"], ("Pig",)),
    ]
    examples = [
        first._replace(id=str(number), answer=answer, golds=golds)
        for number, (answers, golds) in enumerate(asked)
        for answer in answers
    ]
    right = [0.6, 0.4, 0.2, 0.3, 0.9, 0.1]
    exact, f1 = [], []
    for answer, golds in (("The Cow", asked[0][1]), ("Moo Cow", asked[1][1]), ("Moo", ("Pig",))):
        said = _official_words(answer)
        words = list(map(_official_words, golds))
        exact.append(max(said == gold for gold in words))
        common = [(Counter(said) & Counter(gold)).total() for gold in words]
        f1.append(max(2 * n / (len(said) + len(gold)) for n, gold in zip(common, words)))  # noqa: B905
    assert exact == [True, False, False] and f1 == pytest.approx([1, 0.8, 0])
    predictions = [np.array([1 - each, each]) for each in right]
    found = SuperGlue("", "ReCoRD").score(examples, predictions, {})
    expected = {"mean": 100 * (1 / 3 + 0.6) / 2, "f1": 60, "exact": 100 / 3}
    assert found == pytest.approx(expected)


# -------------------------------------------------------------------------------- errors


def _passage(name, **changes):
    return {"passage": ROWS[name]["passage"] | changes}


def _query(**changes):
    return {"qas": [ROWS["ReCoRD"]["qas"][0] | changes]}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("BoolQ", {"label": "maybe"}, "label 'maybe' is unknown; the known ones are 'false', 't"),
        ("BoolQ", {"passage": ""}, "'passage' is empty"),
        ("CB", {"label": None}, "'label' is None, no label"),
        ("CB", {"idx": "x"}, "'idx' is 'x', not a number"),
        ("COPA", {"question": "why"}, "'question' is 'why', not one of cause, effect"),
        ("COPA", {"label": 2}, "'label' is 2, not one of 0 to 1"),
        ("WiC", {"start1": 99}, "'start1' is 99, not one of 0 to 9"),
        ("WiC", {"end2": 3}, "'end2' is 3, which is not after its start, 3"),
        ("WSC", {"target": {"span1_text": "Mark"}}, "target=.* missing required field `span2_tex"),
        (
            "WSC",
            {"target": {"span1_text": "Mark", "span2_text": "he", "span2_index": 8}},
            "but the text has 8 words",
        ),
        ("MultiRC", _passage("MultiRC", text=7), "passage.text=7: expected `str`"),
        (
            "MultiRC",
            _passage(
                "MultiRC", questions=[{"question": "?", "idx": 0, "answers": [{"text": "a"}]}]
            ),
            r"passage.questions\[0\].answers\[0\]=.* missing required field `idx`",
        ),
        (
            "MultiRC",
            _passage(
                "MultiRC",
                questions=[{"question": "?", "idx": 0, "answers": [{"text": "a", "idx": 0}]}],
            ),
            "label 'none' is unknown; the known ones are '0', '1'",
        ),
        (
            "ReCoRD",
            _passage("ReCoRD", entities=[{"start": 30, "end": 99}]),
            "is not in its 36 char",
        ),
        ("ReCoRD", _passage("ReCoRD", entities=[]), "which has no entities"),
        ("ReCoRD", _query(query="Who?"), "in which a query has no @placeholder"),
        ("ReCoRD", _query(answers=[]), "in which a query has no answers"),
    ],
)
def test_bad_rows(tmp_path, name, changes, message):
    with pytest.raises(InputError, match=rf"train.jsonl line 1: .*{message}"):
        _task(tmp_path, name, **changes).read(TRAIN)


def test_bad_files(tmp_path):
    with pytest.raises(ValueError, match="name='boolq': must be one of BoolQ, CB, COPA"):
        SuperGlue("", "boolq")
    with pytest.raises(InputError, match="RTE: no such folder: name the folder that has train.jso"):
        SuperGlue(str(tmp_path), "RTE").read(TRAIN)
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "val.jsonl").write_text("")
    with pytest.raises(InputError, match="val.jsonl: no example in it"):
        SuperGlue(str(tmp_path), "RTE").read("dev")
