"""The user's own tables: formats, columns, problems, and their errors."""

import gzip
import json

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet
from sklearn.utils.class_weight import compute_class_weight

from bertjax.base.errors import InputError
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import Answer, Span, Spans
from bertjax.tasks.rows import read_rows
from bertjax.tasks.table import Table
from bertjax.tasks.task import TRAIN


def write(folder, **files: str) -> str:
    """Writes train_csv="..." as train.csv, and so on."""
    for name, text in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_text(text, encoding="utf-8", newline="")
    return str(folder)


def test_formats_of_text(tmp_path):
    write(
        tmp_path,
        a_csv='text,n\r\n"a, ""b""\nc",1\r\n\r\né\t,2\r\n',
        b_tsv='text\tn\n"a, ""b""\t1\n\né\t2\n',
        c_jsonl='{"text": "a\\tb", "n": 1}\n\n{"n": 2, "text": "\\u00e9"}\n',
    )

    def fields(name):
        return [(row.number, dict(row.fields)) for row in read_rows(tmp_path, name)]

    assert fields("a.csv") == [
        (0, {"text": 'a, "b"\nc', "n": "1"}),
        (1, {"text": "é\t", "n": "2"}),
    ]
    assert fields("b.tsv") == [(0, {"text": '"a, ""b""', "n": "1"}), (1, {"text": "é", "n": "2"})]
    assert fields("c.jsonl") == [(0, {"text": "a\tb", "n": 1}), (1, {"n": 2, "text": "é"})]
    assert [row.where[-6:] for row in read_rows(tmp_path, "c.jsonl")] == ["line 1", "line 3"]
    # The file may be in a subfolder, compressed, or somewhere else.
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.csv.gz").write_bytes(gzip.compress(b"text,n\na,1\n"))
    for name in ("old/a.csv", "old/a.csv.gz", str(tmp_path / "old" / "a.csv")):
        assert fields(name) == [(0, {"text": "a", "n": "1"})]
    # The first of , ; tab | in the first line separates the columns.
    write(tmp_path, f_csv='n;"te,\nxt"\r\n1;"a;b, c"\r\n', g_csv="\n\nn|text\n1|a;b, c\n")
    write(tmp_path, h_csv="n\ttext\n1\ta | b\n", i_csv="text,n;m\na;b,1\n")
    assert fields("f.csv") == [(0, {"n": "1", "te,\nxt": "a;b, c"})]
    assert fields("g.csv") == [(0, {"n": "1", "text": "a;b, c"})]
    assert fields("h.csv") == [(0, {"n": "1", "text": "a | b"})]
    assert fields("i.csv") == [(0, {"text": "a;b", "n;m": "1"})]
    write(tmp_path, j_csv="sep=;\r\na,b;n\r\nx;1\r\n", k_csv="sep=;\na;b\n1\n")
    assert fields("j.csv") == [(0, {"a,b": "x", "n": "1"})]
    with pytest.raises(InputError, match="k.csv line 3: 1 columns, but the first line has 2"):
        fields("k.csv")
    long = "x" * 200_000
    write(tmp_path, long_csv=f"text\n{long}\n")
    assert fields("long.csv") == [(0, {"text": long})]
    write(tmp_path, half_jsonl='{"text": "\\ud83d\\ude00"}\n{"text": "\\ud83d"}\n')
    with pytest.raises(InputError, match=r"half.jsonl line 2: \\ud83d is half a surrogate pair"):
        fields("half.jsonl")
    write(tmp_path, d_txt="a")
    with pytest.raises(InputError, match="d.txt: must end in .csv, .tsv, .jsonl"):
        next(read_rows(tmp_path, "d.txt"))
    write(tmp_path, e_csv="a,a\n1,2\n")
    with pytest.raises(InputError, match="e.csv: two columns have the same name: 'a', 'a'"):
        next(read_rows(tmp_path, "e.csv"))


def test_parquet(tmp_path):
    columns = {"text": ["é", "b"], "labels": [["x"], []], "n": [1.5, None]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet", row_group_size=1)
    rows = list(read_rows(tmp_path, "a.csv", "a.parquet"))
    assert [dict(row.fields) for row in rows] == [
        {"text": "é", "labels": ["x"], "n": 1.5},
        {"text": "b", "labels": [], "n": None},
    ]
    assert rows[1].where.endswith("a.parquet row 2")
    # Other forms of a column of texts.
    columns = {
        "text": arrow.array(["é", "b", "é"]).dictionary_encode(),
        "view": arrow.array(["a", "b" * 20, None], arrow.string_view()),
        "large": arrow.array([["x"], ["y", "z"], []], arrow.large_list(arrow.large_string())),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "c.parquet")
    assert [tuple(row.fields.values()) for row in read_rows(tmp_path, "c.parquet")] == [
        ("é", "a", ["x"]),
        ("b", "b" * 20, ["y", "z"]),
        ("é", None, []),
    ]
    (tmp_path / "b.parquet").write_text("text")
    with pytest.raises(InputError, match="b.parquet: not a Parquet file, or damaged"):
        list(read_rows(tmp_path, "b.parquet"))


def write_of_hub(path, labels, **more):
    """A Parquet file as the library datasets writes it, with classes by their numbers."""
    names = {"_type": "ClassLabel", "names": ["neg", "pos", "mixed"]}
    features = {"text": {"_type": "Value", "dtype": "string"}, "label": names}
    features["tags"] = {"_type": "List", "feature": names}
    columns = {"text": list("abcde")[: len(labels)], "label": labels}
    columns["tags"] = [[label, 0] for label in labels]
    about = json.dumps({"info": {"features": features}} | more)
    table = arrow.table(columns).replace_schema_metadata({"huggingface": about})
    parquet.write_table(table, path)


def test_classes_of_the_hub_have_their_names(tmp_path):
    write_of_hub(tmp_path / "train.parquet", [2, 0, 1])
    write_of_hub(tmp_path / "dev.parquet", [1, -1])
    write_of_hub(tmp_path / "test.parquet", [-1, -1])
    write_of_hub(tmp_path / "odd.parquet", [1, 3])
    task = Table(str(tmp_path))
    assert [example.label for example in task.read(TRAIN)] == ["mixed", "neg", "pos"]
    assert task.family.classes == ("mixed", "neg", "pos")
    (row, *_) = read_rows(tmp_path, "train.parquet")
    assert row.fields["tags"] == ["mixed", "neg"]
    assert [example.label for example in task.read("test")] == [None, None]
    with pytest.raises(InputError, match="dev.parquet row 2: 'label' is None, no label .*-1 means"):
        task.read("dev")
    with pytest.raises(InputError, match="odd.parquet row 2: 'label' is 3, and the schema names 3"):
        Table(str(tmp_path), train="odd.parquet").read(TRAIN)
    write_of_hub(tmp_path / "bad.parquet", [1], info=3)
    with pytest.raises(InputError, match="bad.parquet, 'huggingface' in its schema: damaged"):
        next(read_rows(tmp_path, "bad.parquet"))


def test_classification(tmp_path):
    data = write(
        tmp_path,
        train_csv="title,kind,body\nA,10,x\nB,9,y\nC,9,\n",
        dev_jsonl='{"kind": 10, "title": "D"}\n{"kind": "9", "title": "E"}\n',
        other_tsv="title\nF\n",
    )
    task = Table(data, text="title", label="kind", test="other.tsv")
    assert (task.metric, task.family.classes) == ("accuracy", ("9", "10"))
    assert (task.dev_splits, task.test_splits) == (("dev",), ("test",))
    assert [tuple(e)[:4] for e in task.read(TRAIN)][:2] == [
        ("0", "A", None, "10"),
        ("1", "B", None, "9"),
    ]
    dev = task.read("dev")
    assert [example.label for example in dev] == ["10", "9"]
    assert task.read("test")[0][1:4] == ("F", None, None)
    predictions = [np.array([0.2, 0.8]), np.array([0.4, 0.6])]
    found = task.score(dev, predictions, task.tune(dev, predictions))
    assert found == pytest.approx({"accuracy": 50, "macro_f1": 100 / 3, "f1": 200 / 3})
    task.write(tmp_path, "dev", dev, predictions, {})
    lines = list(map(json.loads, (tmp_path / "dev.jsonl").read_text().splitlines()))
    assert lines[0] == {"text": "D", "label": "10", "probabilities": {"9": 0.2, "10": 0.8}}

    with pytest.raises(InputError, match="train.csv line 4: 'body' is empty"):
        Table(data, text="title", text_b="body", label="kind").read(TRAIN)


def test_classes_that_are_numbers_are_in_their_order(tmp_path):
    data = write(tmp_path, train_csv="text,label\na,1\nb,-1\nc,10\nd,no\ne,2\n")
    assert Table(data).family.classes == ("-1", "1", "2", "10", "no")


def test_several_labels_at_once(tmp_path):
    data = write(
        tmp_path,
        train_csv='text,label\na,"joy, anger"\nb,\nc,joy\nd, \n',
        dev_jsonl='{"text": "e", "label": ["joy", "10"]}\n{"text": "f", "label": "joy"}\n',
        test_csv="text\ng\n",
    )
    task = Table(data, "multi_label")
    assert task.family == MultiLabel(("anger", "joy"), pairs=False)
    assert (task.metric, task.test_splits) == ("macro_f1", ("test",))
    assert [e.label for e in task.read(TRAIN)] == [("joy", "anger"), (), ("joy",), ()]
    with pytest.raises(InputError, match="dev.jsonl line 1: label '10' is unknown; the known ones"):
        task.read("dev")
    assert task.read("test")[0][1:4] == ("g", None, None)

    # Other names and separators; numbers; two texts.
    rows = ['{"l": [10, 9, true], "a": "x", "b": "y"}', '{"l": [], "a": "x", "b": "y"}']
    write(tmp_path, more_jsonl="\n".join(rows), dev_csv="a;b;l\nx;y;10|9\nx;y;True\n")
    (tmp_path / "dev.jsonl").unlink()
    columns = dict(text="a", text_b="b", label="l")
    task = Table(data, "multi_label", train="more.jsonl", **columns, separator="|")
    assert task.family == MultiLabel(("9", "10", "True"), pairs=True)
    dev = task.read("dev")
    assert [e.label for e in dev] == [("10", "9"), ("True",)]
    predictions = [np.array([0.4, 0.2, 0.1]), np.array([0.2, 0.1, 0.7])]
    settings = task.tune(dev, predictions)
    assert settings == {"thresholds": {"9": 0.3, "10": 0.15, "True": 0.5}}
    assert task.score(dev, predictions, settings) == pytest.approx(
        {"macro_f1": 100, "micro_f1": 100, "exact_match": 100}
        | {"macro_f1_at_0.5": 100 / 3, "micro_f1_at_0.5": 50}
    )
    task.write(tmp_path, "dev", dev, predictions, settings)
    first, second = map(json.loads, (tmp_path / "dev.jsonl").read_text().splitlines())
    assert first == {
        **{"text": "x", "text_b": "y", "labels": ["9", "10"]},
        "probabilities": {"9": 0.4, "10": 0.2, "True": 0.1},
    }
    assert second["labels"] == ["True"]


def test_one_class_is_enough_and_none_is_not(tmp_path):
    data = write(tmp_path, train_csv="text,label\na,x\nb,\n")
    assert Table(data, "multi_label").family.classes == ("x",)
    write(tmp_path, train_csv="text,label\na,\nb,\n")
    with pytest.raises(InputError, match="no row of the training file has a label"):
        _ = Table(data, "multi_label").family


def test_balanced_weights_are_those_of_scikit_learn(tmp_path):
    names = ["z"] * 3 + ["y"] * 11 + ["x"]
    data = write(tmp_path, train_csv="text,label\n" + "".join(f"a,{name}\n" for name in names))
    task = Table(data, class_weights="balanced", focal_gamma=2)
    expected = compute_class_weight("balanced", classes=np.array(["x", "y", "z"]), y=names)
    assert task.objective_settings["class_weights"] == pytest.approx(expected)
    assert task.objective_settings["focal_gamma"] == 2
    assert Table(data).objective_settings == {}
    words = [json.dumps({"words": ["a"] * 5, "tags": names[n : n + 5]}) for n in (0, 5, 10)]
    write(tmp_path, tags_jsonl="\n".join(words))
    task = Table(data, "tagging", train="tags.jsonl", class_weights="balanced")
    assert task.objective_settings == {"class_weights": pytest.approx(expected)}


def test_balanced_weights_of_several_labels(tmp_path):
    """Rows without a label over rows with it."""
    data = write(tmp_path, train_csv='text,label\na,"x,y"\nb,\nc,x\nd,x\ne,x\n')
    task = Table(data, "multi_label", class_weights="balanced")
    assert task.objective_settings == {"class_weights": (1 / 4, 4)}
    write(tmp_path, train_csv='text,label\na,"x,y"\nb,x\n')
    with pytest.raises(InputError, match="class_weights=balanced: every row .* the label 'x'"):
        _ = Table(data, "multi_label", class_weights="balanced").objective_settings
    _ = Table(data, "multi_label", focal_gamma=1).objective_settings


@pytest.mark.parametrize(
    ("problem", "fields", "message"),
    [
        ("classification", dict(class_weights="equal"), "class_weights='equal': must be balanced"),
        ("multi_label", dict(focal_gamma=-0.5), "focal_gamma=-0.5: must be from 0 to"),
        ("multi_label", dict(focal_gamma=float("nan")), "focal_gamma=nan: must be from 0 to"),
        ("multi_label", dict(separator=""), "separator='': must be one character"),
        ("multi_label", dict(separator=", "), "separator=', ': must be one character"),
        ("tagging", dict(crf=True, focal_gamma=2), "tagging with a CRF has no classes that could"),
        ("classification", dict(crf=True), "crf=True: classification has no tags"),
        ("tagging", dict(answer_steps=2), "answer_steps=2: .* class, and tagging has none"),
        ("regression", dict(answer_steps=2, text_b="b"), "answer_steps=2: .*regression has none"),
        ("classification", dict(answer_steps=2), "and classification without text_b has none"),
        (
            "classification",
            dict(answer_steps=-2, text_b="b"),
            "answer_steps=-2: must be at",
        ),
        ("regression", dict(focal_gamma=2), "focal_gamma=2: regression has no classes"),
        ("questions", dict(class_weights="balanced"), "class_weights='balanced': questions has no"),
    ],
)
def test_values_that_a_problem_does_not_take(problem, fields, message):
    """Nothing is read before."""
    with pytest.raises(ValueError, match=message):  # InputError is one
        Table("nowhere", problem, **fields)


def test_regression(tmp_path):
    data = write(
        tmp_path,
        train_csv="text,text_b,label\na,b,1\nc,d,-2.5e1\n",
        dev_csv="text,text_b,label\na,b,0\nc,d,1\ne,f,2\n",
    )
    task = Table(data, problem="regression", text_b="text_b")
    assert [example[1:4] for example in task.read(TRAIN)] == [("a", "b", 1.0), ("c", "d", -25.0)]
    assert task.score(task.read("dev"), [1.0, 4.0, 9.0], {})["spearman"] == pytest.approx(100)
    assert task.metric == "spearman" and task.test_splits == ()


def test_tagging(tmp_path):
    data = write(
        tmp_path,
        train_jsonl='{"words": ["New York", "is"], "tags": ["B-LOC", "O"]}\n',
        dev_csv='words,tags\n"Rome , is",B-LOC O O\n',
    )
    task = Table(data, problem="tagging")
    assert (task.family.classes, task.metric) == (("B-LOC", "O"), "f1")
    assert task.read(TRAIN)[0].words == ("New York", "is")
    (dev,) = task.read("dev")
    assert (dev.words, dev.tags) == (("Rome", ",", "is"), ("B-LOC", "O", "O"))
    certain = np.eye(2)  # B-LOC, O
    assert task.score([dev], [certain[[0, 1, 1]]], {})["f1"] == 100
    assert task.score([dev], [certain[[1, 1, 1]]], {})["f1"] == 0

    table = Table(write(tmp_path, train_jsonl='{"words": "a b", "tags": "NN VB"}\n'), "tagging")
    assert (table.family.classes, table.metric) == (("NN", "VB"), "accuracy")
    with pytest.raises(InputError, match=r"dev.csv line 2: the tag 'B-LOC' .* not one of NN VB"):
        table.read("dev")
    write(tmp_path, train_jsonl='{"words": "a b", "tags": ["NN"]}\n')
    with pytest.raises(InputError, match=r"train.jsonl line 1: 2 words, but 1 tags"):
        Table(data, problem="tagging").read(TRAIN)


def test_tags_that_are_nearly_those_of_entities(tmp_path, capsys):
    """Such tags are classes of words, and a warning says so."""
    rows = ["O B-LOC", "O NN", "O Q-FOO"]
    lines = [json.dumps({"words": "a b", "tags": row}) for row in rows]
    data = write(tmp_path, train_jsonl="\n".join(lines) + "\n")
    task = Table(data, problem="tagging")
    assert (task.metric, task.family.classes) == ("accuracy", ("B-LOC", "NN", "O", "Q-FOO"))
    output = capsys.readouterr().out
    assert output.startswith(f"warning: {data}/train.jsonl line 2: 'NN' is not an entity tag")
    assert output.count("\n") == 1
    write(tmp_path, train_jsonl="\n".join([lines[0], lines[2].replace("Q-FOO", "B-")]) + "\n")
    assert Table(data, problem="tagging").metric == "accuracy"
    assert "train.jsonl line 2: 'B-' is not an entity tag" in capsys.readouterr().out
    for rows in (lines[:1], lines[1:]):  # only entity tags, and only others
        write(tmp_path, train_jsonl="\n".join(rows) + "\n")
        _ = Table(data, problem="tagging").family
    assert capsys.readouterr().out == ""
    for first, second in (("B_PER", "I_PER"), ("M-PER", "M-LOC")):  # of other schemes
        rows = (
            json.dumps({"words": "a b", "tags": tags}) for tags in (f"O {first}", f"O {second}")
        )
        write(tmp_path, train_jsonl="\n".join(rows) + "\n")
        assert Table(data, problem="tagging").metric == "accuracy"
        assert "is not an entity tag (O, B-TYPE, I-TYPE): all tags are" in capsys.readouterr().out


def test_questions(tmp_path):
    data = write(
        tmp_path,
        train_csv="question,context,answer\nWho?,Ünal met Bo.,Ünal\nWhere?,Ünal met Bo.,\n",
        dev_jsonl='{"question": "Who?", "context": "a b a", "answer": ["a", "b"]}\n',
    )
    task = Table(data, problem="questions")
    first, second = task.read(TRAIN)
    assert (first.answers, first.impossible) == ((Answer("Ünal", 0),), False)
    assert (second.answers, second.impossible) == ((), True)
    assert (task.family.unanswerable, task.metric) == (True, "f1_tuned")
    (dev,) = task.read("dev")
    assert dev.answers == (Answer("a", 0), Answer("b", 2))
    # Training uses the first answer, so only its position must be known.
    some = '{"question": "Who?", "context": "a b a", "answer": ["b", "a"]}\n'
    (learned,) = Table(write(tmp_path, more_jsonl=some), "questions", train="more.jsonl").read(
        TRAIN
    )
    assert learned.answers == (Answer("b", 2), Answer("a", 0))
    write(tmp_path, more_jsonl=some.replace('"b", "a"', '""'))
    with pytest.raises(InputError, match="line 1: 'answer' '' does not stand in its context"):
        Table(data, "questions", dev="more.jsonl").read("dev")
    predictions = [Spans((Span("b", 2, 3, 1.0, 0.9),), 0.5)]
    settings = task.tune([dev], predictions)
    assert task.score([dev], predictions, settings)["f1_tuned"] == 100

    train = "question,context,answer,at\nWho?,a b a,a,4\n"
    placed = Table(write(tmp_path, train_csv=train), problem="questions", answer_start="at")
    assert placed.read(TRAIN)[0].answers == (Answer("a", 4),)
    assert placed.metric == "f1"
    write(tmp_path, train_csv=train.replace("4", "3"))
    with pytest.raises(InputError, match="line 2: 'answer' 'a' does not stand in its context at 3"):
        Table(data, problem="questions", answer_start="at").read(TRAIN)
    for start in ("4.5", "0_4", "x"):
        write(tmp_path, train_csv=train.replace("4", start))
        with pytest.raises(InputError, match=f"line 2: 'at' is '{start}', not a whole number"):
            Table(data, problem="questions", answer_start="at").read(TRAIN)
    (tmp_path / "dev.jsonl").unlink()
    write(tmp_path, dev_csv="question,context,answer,at\nWho?,a,,\n")
    with pytest.raises(InputError, match="dev.csv line 2: 'answer' is empty, but all questions"):
        placed.read("dev")


@pytest.mark.parametrize(
    "problem, train, message",
    [
        ("classification", "text,kind\na,1\n", "line 2: no column 'label'; it has 'text', 'kind'"),
        ("classification", "text,label\n ,1\n", "train.csv line 2: 'text' is empty"),
        ("classification", "text,label\na,\n", "'label' is empty"),
        ("classification", "text,label\na\n", "line 2: 1 columns, but the first line has 2"),
        ("classification", "text,label\n", "train.csv: no row in it"),
        ("classification", "", "train.csv: no row in it"),
        ("multi_label", 'text,label\na,"x,,y"\n', "line 2: 'label' is 'x,,y', which has an empty"),
        ("multi_label", "text,labels\na,x\n", "line 2: no column 'label'; it has"),
        ("regression", "text,label\na,x\n", "'label' is 'x', not a number"),
        ("regression", "text,label\na,1_000\n", "'label' is '1_000', not a number"),
        ("regression", "text,label\na,５\n", "'label' is '５', not a number"),
        ("regression", "text,label\na,1e400\n", "'label' is '1e400', not a number"),
        ("tagging", "words,tags\n,\n", "'words' is empty"),
        ("questions", "question,context,answer\n,b,b\n", "'question' is empty"),
        ("questions", "question,context,answer\na,b,c\n", "'answer' 'c' does not stand in its"),
        ("questions", "question,context,answer\na,b b,b\n", "'b' stands in its context more than"),
    ],
)
def test_bad_tables(tmp_path, problem, train, message):
    with pytest.raises(InputError, match=message):
        Table(write(tmp_path, train_csv=train), problem=problem).read(TRAIN)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("3", "line 1: 'label' is 3, not a list of labels"),
        ("null", "'label' is None, not a list of labels"),
        ('["x", null]', r"'label' is \['x', None\], not a list of labels"),
        ('[["x"]]', r"'label' is \[\['x'\]\], not a list of labels"),
        ('{"x": 1}', "'label' is {'x': 1}, not a list of labels"),
        ('["x", " "]', "'label' is .*, which has an empty label"),
    ],
)
def test_cells_that_are_no_labels(tmp_path, cell, message):
    data = write(tmp_path, train_jsonl=f'{{"text": "a", "label": {cell}}}\n')
    with pytest.raises(InputError, match=f"train.jsonl .*{message}"):
        Table(data, "multi_label").read(TRAIN)


@pytest.mark.parametrize(
    "problem, train, message",
    [
        (
            "classification",
            "text,label\na,pos\nb,neg\nc,pos \n",
            "line 4: .* 'pos ' .* line 2, 'pos'",
        ),
        ("classification", "text,label\na,1.0\nb,2\nc,1\n", "line 4: .* '1' .* line 2, '1.0'"),
        ("classification", "text,label\na,x  y\nb,x y\n", "line 3: .* 'x y' .* line 2, 'x  y'"),
        ("tagging", '{"words": ["a", "b"], "tags": ["O", "O "]}\n', "line 1: .* 'O ' .* 1, 'O'"),
        ("multi_label", '{"text": "a", "label": ["x", "x "]}\n', "line 1: .* 'x ' .* 1, 'x'"),
    ],
)
def test_labels_that_are_nearly_the_same(tmp_path, problem, train, message):
    file = "train_csv" if problem == "classification" else "train_jsonl"
    with pytest.raises(InputError, match=message):
        _ = Table(write(tmp_path, **{file: train}), problem=problem).family


def test_labels_that_differ_are_left(tmp_path):
    train = "text,label\na,1\nb,10\nc,-1\nd,1.5\ne,1e1\nf,x\ng,X\n"
    classes = Table(write(tmp_path, train_csv=train)).family.classes
    assert classes == ("-1", "1", "10", "1.5", "1e1", "X", "x")
    long = ["1" * 5000, "1" * 4999 + "2", "9"]  # of more digits than Python reads as one number
    train = "text,label\n" + "".join(f"a,{label}\n" for label in long)
    assert Table(write(tmp_path, train_csv=train)).family.classes == ("9", *long[:2])


def test_two_files_to_learn_from(tmp_path):
    data = write(tmp_path, train_csv="text,label\na,1\n", train_tsv="text\tlabel\nb\t2\n")
    with pytest.raises(InputError, match="has train.csv and train.tsv, but only one may exist"):
        Table(data).read(TRAIN)
    (example,) = Table(data, train="train.tsv").read(TRAIN)
    assert example.a == "b"


def test_bad_labels_and_files(tmp_path):
    data = write(tmp_path, train_csv="text,label\na,x\n", dev_csv="text,label\na,z\n")
    with pytest.raises(InputError, match="every row of the training file has the label 'x'"):
        _ = Table(data).family
    write(tmp_path, train_csv="text,label\na,x\na,y\n")
    with pytest.raises(InputError, match="dev.csv line 2: label 'z' is unknown; .* are 'x', 'y'"):
        Table(data).read("dev")
    write(tmp_path, tags_jsonl='{"words": "a b", "tags": "O O"}\n')
    with pytest.raises(InputError, match="every word of the training file has the tag 'O'"):
        _ = Table(data, "tagging", train="tags.jsonl").family
    write(tmp_path, huge_jsonl='{"text": "a", "label": 1' + "0" * 400 + "}\n")
    with pytest.raises(InputError, match="huge.jsonl line 1: 'label' is 1000*, not a number"):
        Table(data, "regression", train="huge.jsonl").read(TRAIN)
    write(tmp_path, truth_jsonl='{"text": "a", "label": true}\n')
    with pytest.raises(InputError, match="truth.jsonl line 1: 'label' is True, not a number"):
        Table(data, "regression", train="truth.jsonl").read(TRAIN)
    soft = '{"text": "a", "label": "x", "soft": {"x": 1, "y": 1' + "0" * 400 + "}}\n"
    write(tmp_path, soft_jsonl=soft)
    with pytest.raises(InputError, match="line 1: 'soft' is .*, not an object with a probability"):
        Table(data, train="soft.jsonl", soft_label="soft").read(TRAIN)
    write(tmp_path, deep_jsonl="[" * 100_000 + "\n")
    with pytest.raises(InputError, match="deep.jsonl line 1: not JSON"):
        Table(data, train="deep.jsonl").read(TRAIN)
    with pytest.raises(ValueError, match="problem='ranking': must be one of classification"):
        Table(data, problem="ranking")
    with pytest.raises(InputError, match="no mine.csv in it"):
        Table(data, train="mine.csv").read(TRAIN)
