"""Tables as the hub has them: shards, nulls, answers of SQuAD, and downloads."""

import json
import re
import shutil
from fnmatch import fnmatch
from unittest.mock import MagicMock

import huggingface_hub
import pyarrow as arrow
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    Response,
    RevisionNotFoundError,
)
from pyarrow import parquet

from bertjax.base.errors import InputError
from bertjax.tasks.squad import Answer
from bertjax.tasks.table import Table
from bertjax.tasks.task import TRAIN

_SHARDS = ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001")


def _list(feature):
    return {"feature": feature, "_type": "List"}


def _write(folder, name, names=(), listed=_list, **columns):
    """A Parquet file with columns; `names` are those of the classes of labels and tags."""
    path = folder / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    classes = {"_type": "ClassLabel", "names": list(names)}
    features = {"label": classes} if "label" in columns else {"tags": listed(classes)}
    about = json.dumps({"info": {"features": features if names else {}}})
    table = arrow.table(columns).replace_schema_metadata({"huggingface": about})
    parquet.write_table(table, path)


def _write_shards(folder, inner="data/"):
    """Two shards of training, and one of validation."""
    classes = ("bad", "good")
    for name, labels in zip(_SHARDS, ([1, 0], [1], [0]), strict=True):
        texts = [f"{name[:7]} {label}" for label in labels]
        _write(folder, f"{inner}{name}", classes, text=texts, label=labels)
    return folder


@pytest.mark.parametrize("inner", ["", "data/"])
def test_shards_are_read_in_order(tmp_path, inner):
    task = Table(str(_write_shards(tmp_path, inner)))
    assert [(each.id, each.label) for each in task.read(TRAIN)] == [
        *(("0", "good"), ("1", "bad"), ("2", "good"))
    ]
    assert task.read(TRAIN)[2].where.endswith(f"{_SHARDS[1]}.parquet row 1")
    assert [each.a for each in task.read("dev")] == ["validat 0"]
    assert task.test_splits == ()
    again = Table(str(tmp_path), dev=f"{inner}train-*.parquet")
    assert [each.label for each in again.read("dev")] == ["good", "bad", "good"]
    again = Table(str(tmp_path), train=f"{tmp_path}/{inner}validation-*.parquet")
    assert [each.label for each in again.read(TRAIN)] == ["bad"]
    (tmp_path / f"{inner}{_SHARDS[0]}.parquet").unlink()
    with pytest.raises(InputError, match="00001-of-00002.parquet: 1 of 2 shards are here: downl"):
        Table(str(tmp_path)).read(TRAIN)


def test_a_folder_for_each_split(tmp_path):
    for split in ("train", "validation", "test"):
        _write(tmp_path, f"{split}/0000", text=[split], label=[0.5])
    task = Table(str(tmp_path), "regression")
    assert [task.read(split)[0].a for split in (TRAIN, "dev")] == ["train", "validation"]
    assert task.test_splits == ("test",) and task.read("test")[0].label is None


def test_the_official_name_comes_first(tmp_path):
    _write_shards(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\na,x\nb,y\n")
    assert [each.label for each in Table(str(tmp_path)).read(TRAIN)] == ["x", "y"]


@pytest.mark.parametrize(
    "listed",
    [
        _list,  # as datasets 5.2 writes it, and 3.6 a Sequence and a list of Python
        lambda feature: {"feature": feature, "length": -1, "_type": "Sequence"},
        lambda feature: [feature],
    ],
)
def test_tags_of_the_hub_have_their_names(tmp_path, listed):
    names = ("O", "B-PER", "I-PER")
    columns = dict(words=[["Bo", "Li", "ran"]], tags=[[1, 2, 0]])
    for split in ("train", "validation"):
        _write(tmp_path, f"{split}-00000-of-00001", names, listed, **columns)
    task = Table(str(tmp_path), "tagging")
    assert task.read(TRAIN)[0].gold == ("B-PER", "I-PER", "O") == task.read("dev")[0].gold
    assert task.metric == "f1"


# --------------------------------------------------------------------------------- nulls


@pytest.mark.parametrize(
    ("problem", "columns", "message"),
    [
        ("classification", dict(text=["a", None, "c"], label=["x", "y", "z"]), "'text' is None"),
        ("classification", dict(text=["a", "b", "c"], label=["x", None, "z"]), "'label' is None"),
        ("multi_label", dict(text=["a", "b", "c"], label=[["x"], [None], ["z"]]), r"is \[None\]"),
        ("regression", dict(text=["a", "b", "c"], label=[1.0, None, 2.0]), "'label' is None"),
        (
            "tagging",
            dict(words=[["a"], ["b", "c"], ["d"]], tags=[["x"], [None, "y"], ["z"]]),
            r"'tags' is \[None, 'y'\]",
        ),
        (
            "questions",
            dict(question=["a", None, "c"], context=["d", "e", "f"], answer=["d", "e", "f"]),
            "'question' is None",
        ),
    ],
)
def test_rows_with_null(tmp_path, capsys, problem, columns, message):
    _write(tmp_path, "train", **columns)
    hint = "or leave out all such rows by config.task.on_null=skip"
    with pytest.raises(InputError, match=f"train.parquet row 2: .*{message}, .*; {hint}"):
        Table(str(tmp_path), problem).read(TRAIN)
    found = Table(str(tmp_path), problem, on_null="skip").read(TRAIN)
    assert [each.where[-5:] for each in found] == ["row 1", "row 3"]
    assert capsys.readouterr().out == f"{tmp_path}: train: 1 rows with null left out, 2 read\n"


def test_null_in_a_soft_label(tmp_path):
    soft = [{"x": 1.0, "y": 0.0}, {"x": None, "y": 1.0}, {"x": 0.5, "y": 0.5}]
    _write(tmp_path, "train", text=["a", "b", "c"], label=["x", "y", "y"], soft=soft)
    found = Table(str(tmp_path), soft_label="soft", on_null="skip").read(TRAIN)
    assert [each.soft for each in found] == [soft[0], soft[2]]


def test_a_row_without_label_is_one_with_null(tmp_path):
    _write(tmp_path, "train", ("bad", "good"), text=["a", "b", "c"], label=[1, -1, 0])
    found = Table(str(tmp_path), on_null="skip").read(TRAIN)
    assert [each.label for each in found] == ["good", "bad"]


def test_other_errors_are_not_skipped(tmp_path):
    _write(tmp_path, "train", text=["a", " "], label=["x", "y"])
    with pytest.raises(InputError, match="row 2: 'text' is empty$"):
        Table(str(tmp_path), on_null="skip").read(TRAIN)
    with pytest.raises(ValueError, match="on_null='drop': must be error or skip"):
        Table(str(tmp_path), on_null="drop")
    _write(tmp_path, "train", text=[None, None], label=["x", "y"])
    with pytest.raises(InputError, match="train.parquet: no row in it"):
        Table(str(tmp_path), on_null="skip").read(TRAIN)


# ------------------------------------------------------------------------- SQuAD's answers


def test_answers_of_squad(tmp_path):
    answers = [
        {"text": ["Bo", "Bo met"], "answer_start": [7, 0]},
        {"text": [], "answer_start": []},
    ]
    columns = dict(question=["Who?", "Why?"], context=["Bo met Bo.", "Bo met Bo."])
    _write(tmp_path, "train-00000-of-00001", answers=answers, **columns)
    task = Table(str(tmp_path), "questions", answer="answers")
    first, second = task.read(TRAIN)
    assert first.answers == (Answer("Bo", 7), Answer("Bo met", 0)) and not first.impossible
    assert second.impossible and task.metric == "f1_tuned"
    for wrong, message in (
        ({"text": ["Bo"], "answer_start": [6]}, "'Bo' does not stand in its context at 6"),
        ({"text": ["Bo"], "answer_start": [0, 7]}, "1 answers in 'answers', but 2"),
        ({"text": ["Bo"]}, "answers=.*: object missing required field `answer_start`"),
    ):
        _write(tmp_path, "odd", answers=[wrong], question=["Who?"], context=["Bo met Bo."])
        with pytest.raises(InputError, match=f"odd.parquet row 1: .*{message}"):
            Table(str(tmp_path), "questions", answer="answers", train="odd.parquet").read(TRAIN)


# ------------------------------------------------------------------------------- the hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one data set; what was asked of it, which alone is on this machine then."""
    asked = []
    root, here = _write_shards(tmp_path / "set"), tmp_path / "here"
    _write_shards(root, "small/")
    (root / "small" / "extra.parquet").write_text("")
    (root / "small" / "train.jsonl").write_text(
        "".join(json.dumps({"text": label, "label": label}) + "\n" for label in ("bad", "good"))
    )
    _write(root, "small/matched-00000-of-00001", ("bad", "good"), text=["b"], label=[1])
    _write(root, "plain/train", text=["c"], label=["x"])

    def download(name, *, allow_patterns, repo_type, revision):
        files = [str(each.relative_to(root)) for each in root.rglob("*.*")]
        kept = [each for each in files if any(fnmatch(each, one) for one in allow_patterns)]
        for each in kept:
            (here / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / each, here / each)
        asked.append((name, repo_type, revision, sorted(kept)))
        return str(here)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


@pytest.mark.parametrize(
    ("address", "name", "revision", "folder"),
    [
        ("one/set", "one/set", None, "data"),
        ("set", "set", None, "data"),
        ("one/set/small/", "one/set", None, "small"),
        ("one/set@v1/small", "one/set", "v1", "small"),
        ("one/set@refs/convert/parquet/small", "one/set", "refs/convert/parquet", "small"),
    ],
)
def test_a_data_set_of_the_hub(hub, address, name, revision, folder):
    task = Table(f"hf://datasets/{address}")
    assert [each.label for each in task.read(TRAIN)] == ["good", "bad", "good"]
    assert [each.label for each in task.read("dev")] == ["bad"]
    assert task.test_splits == ()
    files = [f"{folder}/{shard}.parquet" for shard in _SHARDS]
    assert hub == [(name, "dataset", revision, files)]  # once for all splits


def test_files_of_the_hub_that_the_config_names(hub):
    address = "hf://datasets/one/set/small"
    task = Table(address, train="train.jsonl", dev="matched-*.parquet")
    assert [each.a for each in task.read(TRAIN)] == ["bad", "good"]
    assert [each.a for each in task.read("dev")] == ["b"] and task.test_splits == ()
    files = ["small/matched-00000-of-00001.parquet", "small/train.jsonl"]
    assert hub == [("one/set", "dataset", None, files)]  # once for all splits
    assert len(Table(address).read(TRAIN)) == 3  # and not what an earlier run has named
    for name in ("odd.jsonl", "odd-*.parquet"):
        with pytest.raises(InputError, match=rf"no {re.escape(name)}: .* by config.task.dev"):
            Table(address, dev=name).read("dev")


def test_one_file_of_the_hub_for_a_split(hub):
    (example,) = Table("hf://datasets/one/set/plain").read(TRAIN)
    assert (example.a, example.label) == ("c", "x")


def test_addresses_that_the_hub_does_not_have(hub, monkeypatch):
    with pytest.raises(InputError, match="^hf://datasets/: not a data set of the hub: write hf"):
        Table("hf://datasets/").read(TRAIN)
    with pytest.raises(
        InputError, match="no Parquet files of train, .*: if its configurations are"
    ):
        Table("hf://datasets/one/set/large").read(TRAIN)
    answer, page = {"response": MagicMock()}, "https://huggingface.co/datasets/one/set"
    for error, message in (
        (RepositoryNotFoundError("gone", **answer), "the hub has no data set of that name"),
        (GatedRepoError("no", **answer), f"gated: accept its terms at {page}, and set HF_TOKEN"),
        (RevisionNotFoundError("gone", **answer), f"no revision 'v9': those that it has: {page}"),
        (LocalEntryNotFoundError("offline"), "the hub cannot be reached: on a machine with net"),
        (HTTPError("a proxy"), "the hub cannot be reached: on a machine with network, download"),
    ):

        def fail(*args, error=error, **more):
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
        with pytest.raises(InputError, match=f"^hf://datasets/one/set@v9: {message}"):
            Table("hf://datasets/one/set@v9").read(TRAIN)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "may read https://huggingface.co/datasets/one/set, and set HF_TOKEN"),
        (403, "Forbidden: look whether you may read https://huggingface.co/datasets/one/set, and "),
        (429, "Too Many Requests: try later"),
        (503, "Service Unavailable: try later"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_answers_of_the_hub(monkeypatch, status, message, listed):
    """While a file is downloaded, and before, while files are listed."""

    def fail(*args, **more):
        answer = Response(status, request=MagicMock())
        error = HfHubHTTPError("no", response=answer)
        if listed:
            raise error
        raise LocalEntryNotFoundError("not here") from error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    address = "hf://datasets/one/set"
    with pytest.raises(InputError, match=f"^{address}: the hub answers {status} .*{message}"):
        Table(address).read(TRAIN)
