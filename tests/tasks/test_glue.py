"""GLUE: files in its official forms, its metrics, and the leaderboard's files."""

import zipfile

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.classification import AnsweredPairs, Classification
from bertjax.tasks.glue import SETS, SUBMITTED, Glue, submission
from bertjax.tasks.task import TRAIN

_NLI = "index\tsentence1\tsentence2"
_MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
_MNLI += "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
_STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"


def _mnli(index: int, a: str, b: str, *labels: str) -> str:
    return "\t".join(
        [str(index), "31p", "31c", "fiction", "( a )", "( b )", "(X a)", "(X b)", a, b, *labels]
    )


# Task, split, lines of the file, and the (id, a, b, label) of the examples.
FILES = [
    (
        *("CoLA", TRAIN),
        ['gj04\t1\t\tThe "sailors rode.', "gj04\t0\t*\tHe 's  it.", "", ""],
        [
            ("0", 'The "sailors rode.', None, "acceptable"),
            ("1", "He 's  it.", None, "unacceptable"),
        ],
    ),
    ("CoLA", "test", ["index\tsentence", "0\tBill."], [("0", "Bill.", None, None)]),
    ("SST-2", TRAIN, ["sentence\tlabel", "fun \t1"], [("0", "fun ", None, "positive")]),
    ("SST-2", "test", ["index\tsentence", "0\tuneasy "], [("0", "uneasy ", None, None)]),
    (
        *("MRPC", "dev"),
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t7\t8\t" A , he said\t\u2028B "'],
        [("0", '" A , he said', '\u2028B "', "equivalent")],
    ),
    (
        *("MRPC", "test"),
        ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t7\t8\tA\tB", "1\t9\t9\tC\t"],
        [("0", "A", "B", None), ("1", "C", "", None)],
    ),
    (
        *("STS-B", "dev"),
        [f"{_STS}\tscore", "0\tg\tf\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t3.800"],
        [("0", "A plane.", "An air plane.", 3.8)],
    ),
    (
        *("STS-B", "test"),
        [_STS, "0\tg\tf\t2012\t1\tnone\tnone\tÉcole\tA school"],
        [("0", "École", "A school", None)],
    ),
    (
        *("QQP", TRAIN),
        [
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "133273\t21\t22\tHow?\tWhy?\t0",
            "402555\t1\t2\tcut in the middle",
            "",
            "of a row",
            "7\t5\t6\tWho\tWho\t1",
        ],
        [("0", "How?", "Why?", "not_duplicate"), ("1", "Who", "Who", "duplicate")],
    ),
    ("QQP", "test", ["id\tquestion1\tquestion2", "0\tA?\tB?"], [("0", "A?", "B?", None)]),
    (
        *("MNLI", TRAIN),
        [f"{_MNLI}\tlabel1\tgold_label", _mnli(0, "A", "B", "neutral", "neutral")],
        [("0", "A", "B", "neutral")],
    ),
    (
        *("MNLI", "dev_mismatched"),
        [
            f"{_MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
            _mnli(0, "A", "B", *["neutral"] * 3, "entailment", "", "contradiction"),
        ],
        [("0", "A", "B", "contradiction")],
    ),
    ("MNLI", "test_matched", [_MNLI, _mnli(0, "A", "B")], [("0", "A", "B", None)]),
    ("MNLI", "diagnostic", [_NLI, "0\tThe cat.\tNo cat."], [("0", "The cat.", "No cat.", None)]),
    (
        *("QNLI", "dev"),
        ["index\tquestion\tsentence\tlabel", "0\tWhat?\tThat.\tnot_entailment"],
        [("0", "What?", "That.", "not_entailment")],
    ),
    ("RTE", "dev", [f"{_NLI}\tlabel", "3\tA\tB\tentailment"], [("3", "A", "B", "entailment")]),
    ("WNLI", "dev", [f"{_NLI}\tlabel", "0\tA\tB\t1"], [("0", "A", "B", "entailment")]),
]


def write(folder, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")


def read(task: Glue, split: str) -> list[tuple]:
    return [tuple(example)[:4] for example in task.read(split)]


@pytest.mark.parametrize("name, split, lines, expected", FILES, ids=lambda each: str(each)[:12])
def test_official_forms(tmp_path, name, split, lines, expected):
    write(tmp_path / name, f"{split}.tsv", lines)
    if name == "MNLI":  # the file makes it a dev split
        write(tmp_path / name, "dev_mismatched.tsv", FILES[11][2])
    assert read(Glue(str(tmp_path), name), split) == expected
    assert read(Glue(str(tmp_path / name), name), split) == expected  # the task's own folder


def test_every_task_has_its_forms_here():
    assert {name for name, *_ in FILES} == set(SETS)


@pytest.mark.parametrize("place", ["diagnostic", "MNLI", "AX"])
def test_the_diagnostic_set_is_found(tmp_path, place):
    write(tmp_path / "MNLI", "dev_matched.tsv", FILES[11][2])
    task = Glue(str(tmp_path), "MNLI")
    assert (task.dev_splits, task.test_splits) == (("dev_matched",), ())
    write(tmp_path / place, "diagnostic.tsv", [_NLI, "0\tA\tB"])
    task = Glue(str(tmp_path), "MNLI")
    assert task.test_splits == ("diagnostic",)
    assert read(task, "diagnostic") == [("0", "A", "B", None)]


def test_half_of_mnli_gives_a_warning(tmp_path, capsys):
    write(tmp_path / "MNLI", "dev_matched.tsv", FILES[11][2])
    assert len(Glue(str(tmp_path), "MNLI").read("dev_matched")) == 1
    message = "no dev_mismatched.tsv: MNLI is scored on matched genres only"
    assert capsys.readouterr().out == f"warning: {tmp_path / 'MNLI'}: {message}\n"
    write(tmp_path / "MNLI", "dev_mismatched.tsv", FILES[11][2])
    assert len(Glue(str(tmp_path), "MNLI").read("dev_matched")) == 1
    assert capsys.readouterr().out == ""


def test_short_rows_of_qqp_are_counted(tmp_path, capsys):
    (lines,) = (lines for name, split, lines, _ in FILES if (name, split) == ("QQP", TRAIN))
    write(tmp_path, "train.tsv", lines)
    Glue(str(tmp_path), "QQP").read(TRAIN)
    assert "3 rows with too few columns left out, 2 read" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, split, lines, message",
    [
        (
            "RTE",
            "dev",
            [f"{_NLI}\tlabel", "0\tA\tB"],
            r"dev.tsv line 2: 3 columns, but RTE dev has 4",
        ),
        ("RTE", "dev", [f"{_NLI}\tlabel", "0\tA\tB\t0\t"], "line 2: 5 columns"),
        (
            "RTE",
            "dev",
            [f"{_NLI}\tlabel", "0\tA\tB\tyes"],
            "line 2: label 'yes' is unknown; .* are 'en",
        ),
        ("WNLI", "dev", [f"{_NLI}\tlabel", "0\tA\tB\t2"], "label '2' is unknown; .* are '0', '1'"),
        (
            "RTE",
            "dev",
            [_NLI, "0\tA\tB"],
            "dev.tsv: no column 'label', which RTE dev needs; it has",
        ),
        (
            "STS-B",
            "dev",
            [f"{_STS}\tscore", "0" + "\tx" * 9],
            "line 2: score 'x': must be a number",
        ),
        (
            "STS-B",
            "dev",
            [f"{_STS}\tscore", "0" + "\tx" * 8 + "\tnan"],
            "score 'nan': must be a number",
        ),
        (
            "STS-B",
            "dev",
            [f"{_STS}\tscore", "0" + "\tx" * 8 + "\t7.5"],
            "'7.5': must be .* from 0 to 5",
        ),
        ("STS-B", TRAIN, [f"{_STS}\tscore", "0" + "\tx" * 8 + "\t-0.1"], "score '-0.1': must be"),
        ("CoLA", TRAIN, ["a\t1\t\tA", "a\t1\tB"], "line 2: 3 columns, but CoLA train has 4"),
        ("RTE", "dev", [f"{_NLI}\tlabel", "", "0\tA\tB\tentailment"], "line 2: 1 columns, but RTE"),
        ("QQP", "test", ["id\tquestion1\tquestion2", "0\tA"], "line 2: 2 columns"),
        ("RTE", "dev", [f"{_NLI}\tlabel"], "no example of RTE dev"),
        ("RTE", "dev", [""], "it has none: it is empty"),
        ("RTE", TRAIN, None, "RTE: no train.tsv in it"),
    ],
)
def test_bad_files(tmp_path, name, split, lines, message):
    (tmp_path / name).mkdir()
    if lines is not None:
        write(tmp_path / name, f"{split}.tsv", lines)
    with pytest.raises(InputError, match=message):
        Glue(str(tmp_path), name).read(split)


def test_bad_names(tmp_path):
    with pytest.raises(ValueError, match="name='mrpc': must be one of CoLA, SST-2, MRPC"):
        Glue(str(tmp_path), "mrpc")
    with pytest.raises(
        InputError, match="MRPC: no such folder: name the folder that has train.tsv"
    ):
        Glue(str(tmp_path), "MRPC").read(TRAIN)


def test_answer_networks_are_for_pairs_with_classes(tmp_path):
    families = {name: Glue(str(tmp_path), name).family for name in SETS}
    for name, family in families.items():
        if isinstance(family, Classification) and family.pairs:
            found = Glue(str(tmp_path), name, answer_steps=5, answer_dropout=0.25).family
            assert found == AnsweredPairs(family.classes, True, 5, 0.25)
        else:
            with pytest.raises(ValueError, match=f"answer_steps=5: .*, and {name} has none"):
                Glue(str(tmp_path), name, answer_steps=5)
    others = {name for name, each in families.items() if not getattr(each, "classes", ())}
    assert others == {"STS-B"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(answer_steps=-1), "answer_steps=-1: must be at least 0"),
        (dict(answer_steps=5, answer_dropout=1.0), r"answer_dropout=1.0: must be in \[0, 1\)"),
        (dict(answer_steps=5, answer_dropout=-0.1), r"answer_dropout=-0.1: must be in \[0, 1\)"),
        (dict(answer_steps=5, answer_dropout=float("nan")), "answer_dropout=nan: must be in"),
        (dict(answer_dropout=0.2), "answer_dropout=0.2: with answer_steps=0 there is no answer"),
    ],
)
def test_answer_networks_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        Glue("nowhere", "MRPC", **fields)


# ------------------------------------------------------------------------- scores and files


def examples_of(tmp_path, name: str, split: str):
    (lines,) = (lines for n, s, lines, _ in FILES if (n, s) == (name, split))
    write(tmp_path, f"{split}.tsv", lines)
    task = Glue(str(tmp_path), name)
    return task, task.read(split)


def test_scores_by_hand(tmp_path):
    """Of class 1: 3 right, 1 predicted wrongly, 1 missed, 1 more right of class 0."""
    gold, guess = [1, 1, 1, 0, 0, 1], [1, 0, 1, 1, 0, 1]
    accuracy, f1 = 100 * 4 / 6, 100 * 6 / 8
    matthews = 100 * (3 * 1 - 1 * 1) / 8  # / sqrt(4 * 4 * 2 * 2)
    expected = {
        "CoLA": {"matthews": matthews, "accuracy": accuracy},
        **{
            name: {"accuracy": accuracy, "f1": f1, "mean": (accuracy + f1) / 2}
            for name in ("MRPC", "QQP")
        },
        "STS-B": {"spearman": 80.0, "pearson": 79.791, "mean": (80.0 + 79.791) / 2},
    }
    ones = {"CoLA": "acceptable", "MRPC": "equivalent", "QQP": "duplicate", "SST-2": "positive"}
    for name, row in SETS.items():
        task = Glue("", name)
        _, (example,) = examples_of(tmp_path / name, "STS-B", "dev")
        if row.classes:
            assert row.classes[1] == ones.get(name, row.classes[1])
            examples = [example._replace(label=row.classes[label]) for label in gold]
            predictions = list(np.eye(len(row.classes))[guess] * 0.4 + 0.1)
        else:
            # Two neighbours have changed places: 1 - 6 * 2 / (4 * 15). The products of the
            # differences from the means sum to 8.6625, their squares to 14.1875 and 8.3075.
            examples = [example._replace(label=label) for label in (0.0, 1.0, 2.5, 5.0)]
            predictions = [0.1, 3.0, 2.0, 4.0]
        found = task.score(examples, predictions, {})
        assert found == pytest.approx(expected.get(name, {"accuracy": accuracy}), abs=1e-3)
        assert next(iter(found)) == task.metric


def test_files_of_predictions(tmp_path):
    def written(name, split, predictions, file):
        task, examples = examples_of(tmp_path / f"{name} {split}", name, split)
        task.write(tmp_path, split, examples, predictions, {})
        return (tmp_path / file).read_bytes()

    yes, no = np.array([0.1, 0.9]), np.array([0.9, 0.1])
    assert written("MRPC", "test", [yes, no], "MRPC.tsv") == b"index\tprediction\n0\t1\n1\t0\n"
    assert written("STS-B", "test", [5.2], "STS-B.tsv") == b"index\tprediction\n0\t5.000\n"
    assert written("STS-B", "test", [-0.1], "STS-B.tsv") == b"index\tprediction\n0\t0.000\n"
    assert written("STS-B", "test", [1.23456], "STS-B.tsv") == b"index\tprediction\n0\t1.235\n"
    neutral = np.array([0.1, 0.2, 0.7])
    expected = b"index\tprediction\n0\tneutral\n"
    assert written("MNLI", "test_matched", [neutral], "MNLI-m.tsv") == expected
    assert written("MNLI", "diagnostic", [neutral], "AX.tsv") == expected
    expected = b"index\tprediction\tlabel\n3\tnot_entailment\tentailment\n"
    assert written("RTE", "dev", [no[::-1]], "RTE-dev.tsv") == expected
    expected = b"index\tprediction\tlabel\n0\t3.000\t3.800\n"
    assert written("STS-B", "dev", [3.0], "STS-B-dev.tsv") == expected


@pytest.fixture
def predicted(tmp_path):
    """The official number of predictions for each task, in separate folders."""
    for (task, _), (file, rows) in SUBMITTED.items():
        lines = ["index\tprediction", *(f"{row}\t1" for row in range(rows))]
        write(tmp_path / task, file, lines)
    return {task: tmp_path / task for task in SETS}


def test_submission(tmp_path, predicted):
    submission(predicted, tmp_path / "a.zip")
    submission(predicted, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv"),
            *("MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"),
        ]
        for name in ("RTE", "WNLI"):
            content = (predicted[name] / f"{name}.tsv").read_bytes()
            assert archive.read(f"{name}.tsv") == content


def test_submission_that_lacks_something(tmp_path, predicted):
    output = tmp_path / "a.zip"
    (predicted["MNLI"] / "AX.tsv").unlink()
    with pytest.raises(InputError, match="wants 11 files, and these are missing: RTE.tsv, AX.tsv:"):
        submission({k: v for k, v in predicted.items() if k != "RTE"}, output)
    write(predicted["MNLI"], "AX.tsv", ["index\tprediction", "0\tneutral"])
    with pytest.raises(InputError, match="AX.tsv: 1 predictions .* the official test set has 1104"):
        submission(predicted, output)
    assert not output.exists()


# ----------------------------------------------------------------------------- real and TFDS


@pytest.mark.parametrize(
    "name, counts",
    [
        ("CoLA", {TRAIN: 8551, "dev": 1043, "test": 1063}),
        ("MRPC", {TRAIN: 3668, "dev": 408, "test": 1725}),
        ("STS-B", {TRAIN: 5749, "dev": 1500, "test": 1379}),
        ("QNLI", {"dev": 5463, "test": 5463}),
        ("RTE", {TRAIN: 2490, "dev": 277, "test": 3000}),
        ("WNLI", {TRAIN: 635, "dev": 71, "test": 146}),
        ("MNLI", {"diagnostic": 1104}),
    ],
)
def test_real_files(shared_data, name, counts):
    task = Glue(str(shared_data / "glue"), name)
    assert {split: len(task.read(split)) for split in counts} == counts
    assert task.test_splits == (("diagnostic",) if name == "MNLI" else ("test",))
    for split in task.test_splits:
        examples = task.read(split)
        assert SUBMITTED[name, split][1] == len(examples)
        assert [example.id for example in examples] == list(map(str, range(len(examples))))


@pytest.fixture(scope="module")
def tfds_name(tmp_path_factory):
    """A data set with the features of glue/mrpc; examples come out shuffled."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyMrpc(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "tiny_mrpc"

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "sentence1": tfds.features.Text(),
                    "sentence2": tfds.features.Text(),
                    "label": tfds.features.ClassLabel(names=["not_equivalent", "equivalent"]),
                    "idx": np.int32,
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {
                split: self._generate_examples(split) for split in ("train", "validation", "test")
            }

        def _generate_examples(self, split):
            for n in range(20):
                label = -1 if split == "test" else int(n % 3 == 0)
                yield n, {"sentence1": f"É {n}", "sentence2": split, "label": label, "idx": n}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path_factory.mktemp("tfds")))
        yield "tiny_mrpc"


def test_tfds(tfds_name):
    task = Glue(f"tfds:{tfds_name}", "MRPC")
    assert (task.dev_splits, task.test_splits) == (("dev",), ("test",))
    words = ["not_equivalent", "equivalent"]
    for split, name in ((TRAIN, "train"), ("dev", "validation")):
        expected = [(str(n), f"É {n}", name, words[n % 3 == 0]) for n in range(20)]
        assert read(task, split) == expected
    assert read(task, "test") == [(str(n), f"É {n}", "test", None) for n in range(20)]
    with pytest.raises(InputError, match="tfds:no_such_set: "):
        Glue("tfds:no_such_set", "MRPC").read(TRAIN)
    with pytest.raises(InputError, match="mrpc/train: no feature question, sentence; it has "):
        Glue(f"tfds:{tfds_name}", "QNLI").read(TRAIN)
