"""launch/predict.py: it reads lines of new text, and writes lines of JSON."""

import csv
import dataclasses
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.programs import predict
from bertjax.runs.fine_tuning.answers import examples_of, predictions
from bertjax.runs.fine_tuning.fine_tuned import OneModel, open_fine_tuned
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import Classification, Regression
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import QuestionAnswering
from bertjax.tasks.tagging import Tagging
from tests.helpers.closeness import LOGITS, assert_close
from tests.helpers.patience import PATIENCE
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import SPEC
from tests.helpers.task_files import FAMILIES

_QUESTION = (
    None,
    {"question": "Who?", "context": "“é” tweet tweet. baa baa. woof.", "id": "7"},
    {"id", "question", "answer", "start", "end", "score", "probability", "answers"},
)

# For each family: a line as text, the same line as JSON, and the keys of the answer.
LINES = {
    "CoLA": ('" baa baa', {"text": '" baa baa'}, {"text", "label", "probabilities"}),
    "MRPC": (
        *("moo moo ||| baa", {"text": "moo moo", "text_b": "baa"}),
        {"text", "text_b", "label", "probabilities"},
    ),
    "MultiRC": (
        *("moo moo. ||| Who? baa", {"text": "moo moo.", "text_b": "Who? baa"}),
        {"text", "text_b", "label", "probabilities"},
    ),
    "STS-B": (
        *("moo moo ||| baa", {"text": "moo moo", "text_b": "baa"}),
        {"text", "text_b", "value"},
    ),
    "own labels": ("moo baa", {"text": "moo baa"}, {"text", "labels", "probabilities"}),
    "NER": ("moo baa baa .", {"words": "moo baa baa .".split()}, {"words", "tags", "entities"}),
    "own tags": ("moo baa .", {"words": "moo baa .".split()}, {"words", "tags"}),
    "SWAG": (
        None,
        {"context": "moo", "prompt": "the", "choices": ["baa", "moo", "woof", "coo"]},
        {"context", "prompt", "choice", "text", "probabilities"},
    ),
    "SQuAD 1.1": _QUESTION,
    "TriviaQA": _QUESTION,
}


def _door(repository, *flags: str, **more) -> subprocess.CompletedProcess:
    command = [sys.executable, repository / "launch" / "predict.py", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)


def _answers(file) -> list:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_the_door_from_file_to_file(fine_tuned, repository, tmp_path):
    _, run = fine_tuned("CoLA")
    texts = ["baa baa", "", "  ", "“é” moo\r", '{"text": "quack ||| quack"}']
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8", newline="")
    flags = f"--model={run}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"
    result = _door(repository, *flags)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert f"{run}: BertForSequenceClassification" in result.stderr
    answers = _answers(tmp_path / "out")
    assert answers[1:3] == [{}, {}]  # an empty line has an empty answer
    del answers[1:3]
    assert [each["text"] for each in answers] == ["baa baa", "“é” moo", "quack ||| quack"]
    assert "“é” moo" in (tmp_path / "out").read_text(encoding="utf-8")  # not \u00e9
    labels = [each["label"] for each in answers]
    assert labels[0] == "acceptable" and labels[2] == "unacceptable"
    again = _door(repository, *flags)
    assert again.returncode == 2 and again.stderr.endswith("choose another, or remove it\n")
    assert "is there already" in again.stderr


@pytest.mark.slow
def test_the_door_from_standard_input_to_standard_output(fine_tuned, repository):
    _, run = fine_tuned("SWAG")
    lines = [json.dumps(LINES["SWAG"][1]), ""] * 2
    result = _door(repository, f"--model=hf:{run / 'model'}", input="\n".join(lines))
    assert result.returncode == 0, result.stderr
    one, empty, two = map(json.loads, result.stdout.splitlines())
    assert one == two and empty == {} and one["text"] == LINES["SWAG"][1]["choices"][one["choice"]]
    assert sum(one["probabilities"]) == pytest.approx(1)


@pytest.mark.slow
def test_the_door_to_a_model_without_a_head(tiny_run, repository, tmp_path):
    result = _door(repository, f"--model={tiny_run}", f"--output={tmp_path / 'out'}", input="baa\n")
    assert (result.returncode, result.stdout) == (2, "")
    assert "BertForPreTraining has no head of a task: give one of" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", others_slow(LINES, "MRPC", "own labels", "NER"))
def test_lines_of_each_family(fine_tuned, tmp_path, name):
    typed, fields, keys = LINES[name]
    lines = [json.dumps(fields, ensure_ascii=False)] + ([typed] if typed else [])
    with gzip.open(tmp_path / "in.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    predict.run(str(fine_tuned(name)[1]), str(tmp_path / "in.gz"), str(tmp_path / "out"))
    answers = _answers(tmp_path / "out")
    assert len(answers) == len(lines)
    for answer in answers:
        assert answer == answers[0] and set(answer) == keys
    if "question" in fields:
        start, end = answers[0]["start"], answers[0]["end"]
        assert fields["context"][start:end] == answers[0]["answer"] != ""
    if name == "NER":
        assert len(answers[0]["tags"]) == 4


def test_auto_is_float32_on_a_cpu_and_bfloat16_is_near(fine_tuned):
    _, run = fine_tuned("MRPC")
    exact, narrow = (
        np.array(list(answer["probabilities"].values()))
        for dtype in ("auto", "bfloat16")
        for answer in predictions(
            open_fine_tuned(str(run), dtype), [("moo moo ||| baa", "line 1")], "text"
        )
    )
    assert 0 < np.abs(exact - narrow).max() < 0.05


def test_every_kind_of_family_is_here():
    kinds = {FAMILIES[name].task["kind"] for name in LINES}
    assert kinds == {family.task["kind"] for family in FAMILIES.values()}


class _Input(io.TextIOWrapper):
    """A standard input with the given bytes."""

    def __init__(self, data: bytes, typed: bool = False):
        super().__init__(io.BytesIO(data), encoding="ascii")
        self.isatty = lambda: typed


# For each kind of line that cannot be used: a family, and what a model predicts for a line.
_FAMILIES = {
    "CoLA": (Classification(("no", "yes"), pairs=False), np.zeros(2)),
    "MRPC": (Classification(("no", "yes"), pairs=True), np.zeros(2)),
    "STS-B": (Regression(pairs=True), np.zeros(1)),
    "SWAG": (MultipleChoice(), np.zeros(4)),
    "NER": (Tagging(("O", "B-PER")), np.zeros((4, 2))),
    "SQuAD 1.1": (QuestionAnswering(), None),
}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("CoLA", '{"texts": "baa"}', "line 4: {'texts': 'baa'}: object missing required field"),
        ("CoLA", "baa ||| moo", "line 4: baa ||| moo: two texts, but the model learned from one"),
        ("MRPC", "baa\tmoo", "line 4: baa\tmoo: one text, but the model learned from two: write"),
        ("STS-B", '{"text": "baa"}', 'line 4: {"text": "baa"}: one text, but'),
        ("SWAG", "baa", "line 4: "),
        ("SWAG", '{"context": "moo", "choices": ["baa"]}', 'line 4: {"context": "moo", "choi'),
        ("NER", '{"words": 7}', "line 4: words=7: expected"),
        ("SQuAD 1.1", '{"question": "Who?"}', "line 4: {'question': 'Who?'}: object missing"),
        ("SQuAD 1.1", "Who?", "line 4: not JSON"),
    ],
)
@pytest.mark.parametrize("source", ["in.txt", "-"])
def test_a_line_that_cannot_be_used(use, tmp_path, monkeypatch, name, line, message, source):
    """The message has file and line; nothing is written, and for a file nothing is computed."""
    use(*_FAMILIES[name])
    if source != "-":
        monkeypatch.setattr(predict.open_fine_tuned("run", "auto"), "predict", None)
    fine = json.dumps(LINES[name][1])
    text = f"{fine}\n\n{fine}\n{line}\n{fine}\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text(text)
    monkeypatch.setattr(sys, "stdin", _Input(text.encode()))
    with pytest.raises(InputError) as caught:
        predict.run("run", source, "out")
    origin = "standard input" if source == "-" else source
    assert str(caught.value).startswith(f"{origin} {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_an_absent_file_is_reported_before_the_model_is_read(tmp_path):
    with pytest.raises(InputError, match="--input=absent.txt: no such file"):
        predict.run("hf:absent-model", "absent.txt", str(tmp_path / "out"))


@pytest.mark.parametrize("closed", ["input", "output"])
def test_a_standard_stream_that_is_closed(tmp_path, monkeypatch, closed):
    """The stream is closed as by `<&-`; the error comes before the model is read."""
    monkeypatch.setattr(sys, f"std{closed.removesuffix('put')}", None)
    with pytest.raises(InputError, match=f"--{closed}=-: standard {closed} is closed: name a file"):
        predict.run("hf:absent-model", "-", "-")


@pytest.fixture
def use(monkeypatch):
    """Lets launch/predict.py open a model of a family, which predicts the same for all texts."""

    def use(family, prediction, settings=None) -> None:
        model = SimpleNamespace(family=family, columns={}, cut={}, summary="the same for all")
        model.settings = settings or {}
        model.predict = lambda examples, origin: [prediction for _ in examples]
        monkeypatch.setattr(predict, "open_fine_tuned", lambda _, dtype: {"auto": model}[dtype])

    return use


def test_further_columns_are_given_back(use, tmp_path):
    """In a table as in JSON lines; and a column that is named as a field of the answer."""
    use(Classification(("bad", "good")), np.zeros(2))
    rows = [{"id": "7", "text": 'baa, "baa"', "label": "x", "given_label": "y"}]
    rows += [{"id": "é", "text": "quack", "label": "", "given_label": ""}]
    with open(tmp_path / "in.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0].keys(), delimiter=";")
        table.writeheader()
        table.writerows(rows)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (tmp_path / "in.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    for name in ("in.csv", "in.jsonl"):
        predict.run("run", str(tmp_path / name), str(tmp_path / f"{name}.out"))
    one, two = _answers(tmp_path / "in.csv.out")
    assert _answers(tmp_path / "in.jsonl.out") == [one, {}, two]
    assert list(one)[:3] == ["id", "given_label", "given_given_label"]
    assert list(one.values())[:4] == ["7", "x", "y", 'baa, "baa"']
    assert (two["id"], two["text"], two["given_label"]) == ("é", "quack", "")
    assert one["label"] == two["label"] == "bad"


def test_a_table_of_words_and_one_without_the_column(use, tmp_path):
    use(Tagging(("O", "B-PER")), np.zeros((3, 2)))
    (tmp_path / "in.tsv").write_text("words\tid\nmoo baa .\t3\n")
    predict.run("run", str(tmp_path / "in.tsv"), str(tmp_path / "out"))
    (answer,) = _answers(tmp_path / "out")
    assert answer == {"id": "3", "words": ["moo", "baa", "."], "tags": ["O"] * 3, "entities": []}
    (tmp_path / "in.csv").write_text("id,tokens\n3,moo\n")
    with pytest.raises(InputError, match="in.csv line 2: .*missing required field `words`"):
        predict.run("run", str(tmp_path / "in.csv"), str(tmp_path / "no"))
    with pytest.raises(InputError, match="--input=absent.csv: no such file"):
        predict.run("hf:absent-model", "absent.csv", str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_the_columns_of_training_are_those_of_new_text():
    """Else they have the fields' own names; a column that has the field's name is a further one."""
    model = SimpleNamespace(family=Classification(("a", "b"), pairs=False))
    model.columns = {"text": "review"}
    lines = ['{"review": "baa", "text": "moo"}', '{"text": "moo"}', "baa"]
    found = list(examples_of(model, [(line, "here") for line in lines]))
    assert [(example.a, further) for example, further in found] == [
        ("baa", {"text": "moo"}),
        ("moo", {}),
        ("baa", {}),
    ]


@pytest.mark.parametrize("pairs", [None, True])
def test_lines_that_are_two_texts_are_counted(use, tmp_path, capsys, pairs):
    """Unless the model says that it reads two."""
    use(Classification(("x", "y"), pairs=pairs), np.array([0.25, 0.75]))
    lines = ["a ||| b", '{"text": "a ||| b", "text_b": "c"}', "d ||| e"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    predict.run("run", str(tmp_path / "in.txt"), str(tmp_path / "out"))
    assert [each["text"] for each in _answers(tmp_path / "out")] == ["a", "a ||| b", "d"]
    said = "2 of the lines are two texts (A ||| B); one text with ||| in it is written as"
    assert (said in capsys.readouterr().err) == (pairs is None)


def test_two_texts_for_a_model_with_one_segment(make_pretrained):
    spec = dataclasses.replace(SPEC, type_vocab_size=1)
    model = make_pretrained("BertForSequenceClassification", spec)
    model = dataclasses.replace(model, task={"problem_type": "single_label_classification"})
    with pytest.raises(InputError, match="has only one segment: it does not take two texts"):
        list(predictions(OneModel(model), [("a ||| b", "text line 1")], "text"))


@pytest.mark.parametrize("texts", [["a"], ["a b", "c"]])
def test_labels_above_their_thresholds(use, tmp_path, texts):
    """A class without a threshold has 0.5; what equals its threshold is not above it."""
    family = MultiLabel(("x", "y", "z"), pairs=len(texts) > 1)
    use(family, np.array([0.25, 0.5, 0.75]), settings={"thresholds": {"x": 0.125}})
    (tmp_path / "in.txt").write_text(" ||| ".join(texts))
    predict.run("run", str(tmp_path / "in.txt"), str(tmp_path / "out"))
    (answer,) = _answers(tmp_path / "out")
    assert list(answer.values())[: len(texts)] == texts
    assert answer["labels"] == ["x", "z"]
    assert answer["probabilities"] == {"x": 0.25, "y": 0.5, "z": 0.75}


@pytest.mark.peers
def test_a_model_of_several_labels_that_transformers_made(make_pretrained, tmp_path):
    """The probabilities are those of its logits, and there are no thresholds but 0.5."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    problem_type = "multi_label_classification"
    peer = BertForSequenceClassification.from_pretrained(tmp_path, problem_type=problem_type).eval()
    with torch.no_grad():
        peer.classifier.weight *= 30
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for made in (peer, tokenizer):
        made.save_pretrained(tmp_path / "peer")
    assert "bertjax_task" not in json.loads((tmp_path / "peer" / "config.json").read_text())
    pairs = [("a", "b"), ("the b", "c")]
    (tmp_path / "in.txt").write_text("".join(f"{a} ||| {b}\n" for a, b in pairs))
    predict.run(f"hf:{tmp_path / 'peer'}", str(tmp_path / "in.txt"), str(tmp_path / "out"))
    with torch.no_grad():
        batch = tokenizer(*map(list, zip(*pairs, strict=True)), return_tensors="pt", padding=True)
        wanted = peer(**batch).logits.sigmoid().numpy()
    found = _answers(tmp_path / "out")
    for answer, row in zip(found, wanted, strict=True):
        wanted_row = dict(zip(("no", "maybe", "yes"), row, strict=True))
        assert_close(answer["probabilities"], wanted_row, size=LOGITS / 4)  # sigmoid's slope
        assert answer["labels"] == [name for name, p in answer["probabilities"].items() if p > 0.5]
    assert 0 < sum(len(answer["labels"]) for answer in found) < 6


@pytest.mark.parametrize("source", ["in.txt", "-"])
def test_a_byte_order_mark_is_no_text_and_braces_are_no_json(
    fine_tuned, tmp_path, monkeypatch, source
):
    data = b'\xef\xbb\xbf{"text": "baa moo"}\n{baa} moo\n{\n'
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", _Input(data))
    predict.run(str(fine_tuned("CoLA")[1]), source, "out")
    assert [each["text"] for each in _answers(tmp_path / "out")] == ["baa moo", "{baa} moo", "{"]


@pytest.mark.slow
def test_a_reader_who_has_seen_enough(fine_tuned, repository, tmp_path):
    """With `| head -2`, for example, the program prints no traceback."""
    (tmp_path / "in.txt").write_text("baa moo\n" * 5_000)
    command = f"{sys.executable} {repository}/launch/predict.py --model={fine_tuned('CoLA')[1]}"
    command = f"{command} --input={tmp_path / 'in.txt'} --output=- 2>{tmp_path / 'err'} | head -2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], stdout=subprocess.PIPE)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.parametrize("source", ["in.txt", "-"])
def test_bytes_that_are_no_text(fine_tuned, tmp_path, monkeypatch, source):
    data = b"baa\n\xc3\xa9 moo\nb\xff\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", _Input(data))
    with pytest.raises(InputError, match="line 3: not UTF-8 at its byte 1"):
        predict.run(str(fine_tuned("CoLA")[1]), source, "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_someone_who_types_gets_each_answer_at_once(fine_tuned, monkeypatch, capsys):
    """The lines before a bad line have their answers."""
    lines = b'baa\nmoo\n{"x\nwoof\n'
    run = str(fine_tuned("CoLA")[1])
    for typed, answers in ((True, 2), (False, 0)):
        monkeypatch.setattr(sys, "stdin", _Input(lines, typed))
        with pytest.raises(InputError, match="standard input line 3"):
            predict.run(run, "-", "-")
        assert len(capsys.readouterr().out.splitlines()) == answers


def test_many_lines_are_answered_in_order(fine_tuned, tmp_path, monkeypatch):
    """The order does not depend on how many lines are read together."""
    monkeypatch.setattr(predict, "AT_ONCE", 4)
    run = str(fine_tuned("MRPC")[1])
    pairs = [f"{'moo ' * (n % 13 + 1)}||| {'baa ' * (n * 7 % 11 + 1)}".strip() for n in range(11)]
    (tmp_path / "in.txt").write_text("\n".join(pairs))
    predict.run(run, str(tmp_path / "in.txt"), str(tmp_path / "out"))
    found = _answers(tmp_path / "out")
    assert [f"{each['text']} ||| {each['text_b']}" for each in found] == pairs
    for pair, each in list(zip(pairs, found, strict=True))[::5]:
        (tmp_path / "one.txt").write_text(pair)
        (tmp_path / "one").unlink(missing_ok=True)
        predict.run(run, str(tmp_path / "one.txt"), str(tmp_path / "one"))
        alone, among = _answers(tmp_path / "one")[0], each
        assert_close(alone["probabilities"], among["probabilities"], size=1.0)


def test_cut_texts_are_counted_in_one_warning(fine_tuned, tmp_path, capsys):
    """One warning at the end has the number of cut texts and of all texts."""
    (tmp_path / "in.txt").write_text("moo\n" + f"{'baa ' * 60}\n" * 3)
    model, output = str(fine_tuned("CoLA")[1]), str(tmp_path / "out")
    with mock.patch.object(predict, "AT_ONCE", 2):
        predict.run(model, str(tmp_path / "in.txt"), output)
    assert len(_answers(tmp_path / "out")) == 4
    length = json.loads((Path(model) / "config.json").read_text())["max_length"]
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [f"warning: 3 texts cut to {length} tokens: the rest was not read"]


def test_empty_lines_have_empty_answers(use, tmp_path):
    use(Classification(("bad", "good")), np.zeros(2))
    for text, answers in (("", ""), ("\n \n", "{}\n{}\n")):
        (tmp_path / "in.txt").write_text(text)
        (tmp_path / "out").unlink(missing_ok=True)
        predict.run("run", str(tmp_path / "in.txt"), str(tmp_path / "out"))
        assert (tmp_path / "out").read_text() == answers


def test_no_such_input_and_an_output_that_exists(fine_tuned, tmp_path):
    run = str(fine_tuned("CoLA")[1])
    with pytest.raises(InputError, match="--input=.*nowhere: no such file"):
        predict.run(run, str(tmp_path / "nowhere"), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").write_text("kept")
    with pytest.raises(InputError, match="out: is there already"):
        predict.run("no model", str(tmp_path / "nowhere"), str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "kept"
    with pytest.raises(InputError, match="no folder .*nowhere: make it"):
        predict.run("no model", "-", str(tmp_path / "nowhere" / "out"))
