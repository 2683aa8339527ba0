"""Texts that belong together, from tables and from plain text."""

import json
import re
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import huggingface_hub
import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from bertjax.base.errors import InputError
from bertjax.models.heads.embedding import Embedding
from bertjax.objectives.similarity_losses import (
    Binary,
    CoSent,
    Distribution,
    MarginSquared,
    Squared,
)
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.tasks.similarity.examples import (
    Columns,
    Example,
    Texts,
    has_dev,
    read_dev,
    read_examples,
)

COLUMNS = Columns()


def _write(folder, name, rows):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def _read(spec, columns=COLUMNS):
    texts = Texts()
    found = read_examples(spec, columns, texts)
    every = texts.all
    return found, [
        [every[query], *(every[number] if number >= 0 else None for number in passages)]
        for query, passages in zip(found.query, found.passage, strict=True)
    ]


def test_wrong_passages_of_any_number(tmp_path):
    """In a list, or in columns; the same text has one number."""
    rows = [
        {"query": "a", "passage": "b", "negative": ["c", "d"]},
        {"query": "b", "passage": "a"},
        {"query": "c", "passage": "b", "negative": "a", "negative_1": "d", "negative_2": "e"},
    ]
    found, shown = _read(_write(tmp_path, "train.jsonl", rows))
    assert shown == [["a", "b", "c", "d", None], ["b", "a", *[None] * 3], ["c", "b", "a", "d", "e"]]
    assert found.width == 4 and found.scores is None
    assert found.query.tolist() == [0, 1, 2] and found.passage[1, 0] == 0


def test_a_table_with_other_names(tmp_path):
    (tmp_path / "mine.csv").write_text("q,p,n\nx,y,\nz,y,x\n")
    columns = Columns(query="q", passage="p", negative="n")
    assert _read(str(tmp_path / "mine.csv"), columns)[1] == [["x", "y", None], ["z", "y", "x"]]


def test_a_data_set_of_the_hub(tmp_path, monkeypatch):
    (tmp_path / "triplet").mkdir()
    for split, (a, b, c) in (("train", "abc"), ("validation", "def")):
        table = arrow.table({"anchor": [a], "positive": [b], "negative": [c]})
        parquet.write_table(table, tmp_path / "triplet" / f"{split}-00000-of-00001.parquet")
    download = MagicMock(return_value=str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    spec, columns = "hf://datasets/one/set/triplet", Columns(query="anchor", passage="positive")
    assert has_dev(spec) and read_dev(spec, columns) == [Example("d", ("e", "f"))]
    assert _read(spec, columns)[1] == [["a", "b", "c"]]
    patterns = download.call_args.kwargs["allow_patterns"]
    assert "triplet/validation-*.parquet" in patterns and "triplet/test-*.parquet" not in patterns
    assert download.call_count == 1


def test_scores(tmp_path):
    rows = [
        {"query": "a", "passage": "b", "negative": ["c"], "score": [3, -1.5]},
        {"query": "d", "passage": "b", "score": 2},
    ]
    found, _ = _read(_write(tmp_path, "train.jsonl", rows))
    np.testing.assert_array_equal(found.scores, [[3, -1.5], [2, 0]])
    assert found.scores.dtype == np.float32


def test_texts_with_labels(tmp_path):
    rows = [{"text": t, "label": c} for t, c in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"))]
    rows.append({"text": "e", "label": "x"})
    folder = _write(tmp_path, "train.jsonl", rows)
    found, _ = _read(folder)
    assert found.labels.tolist() == [0, 1, 0, 1, 0] and found.width == 1
    _write(tmp_path, "dev.jsonl", rows)
    assert has_dev(folder) and read_dev(folder, COLUMNS) == [
        *(Example(a, (b,)) for a, b in (("a", "c"), ("c", "e"), ("e", "a"))),
        *(Example(a, (b,)) for a, b in (("b", "d"), ("d", "b"))),
    ]


def test_plain_text(tmp_path):
    (tmp_path / "a.txt").write_text("One\nIt is one.\nAnd more.\n\nTwo\n\nThree\nIt is three.\n")
    source = f"text:{tmp_path}/*.txt"
    assert _read(f"titles:{source}")[1] == [["One", "It is one."], ["Three", "It is three."]]
    assert _read(f"neighbours:{source}")[1] == [
        *(["One", "It is one."], ["It is one.", "And more."], ["Three", "It is three."]),
    ]
    assert _read(f"repeated:{source}")[1][3] == ["Two", "Two"]


_BAD = {
    "an empty side": ([{"query": "a", "passage": " "}], "line 1: 'passage' is empty"),
    "no such column": ([{"query": "a", "text": "b"}], "line 1: no column 'passage'"),
    "a number for two": (
        [{"query": "a", "passage": "b", "negative": "c", "score": 1}],
        "line 1: 'score' is 1, 1 for 2 passages: give a list of one number for each",
    ),
    "too few numbers": (
        [{"query": "a", "passage": "b", "negative": "c", "score": [1]}],
        r"line 1: 'score' is \[1\], 1 for 2 passages",
    ),
    "a score that is none": (
        [{"query": "a", "passage": "b", "score": ["x"]}],
        r"line 1: 'score' is \['x'\], not a list of numbers",
    ),
    "an empty wrong passage": (
        [{"query": "a", "passage": "b", "negative": ["c", " "]}],
        "line 1: 'negative' is .'c', ' '., with an empty text",
    ),
    "truth for a number": (
        [{"query": "a", "passage": "b", "score": [True]}],
        r"line 1: 'score' is \[True\], not a list of numbers",
    ),
    "no number": (
        [{"query": "a", "passage": "b", "score": float("nan")}],
        "line 1: 'score' is nan, not a number",
    ),
    "more than any number": (
        [{"query": "a", "passage": "b", "negative": "c", "score": [1, 10**400]}],
        r"line 1: 'score' is \[1, 10*, not a list of numbers",
    ),
    "some scores": (
        [{"query": "a", "passage": "b", "score": 1}, {"query": "a", "passage": "b"}],
        "1 of 2 examples have scores",
    ),
    "one label": ([{"text": "a", "label": "x"}] * 2, "every row has the label 'x'"),
    "a label once": (
        [{"text": t, "label": c} for t, c in (("a", "x"), ("b", "x"), ("c", "y"))],
        "only one text has the label 'y'",
    ),
    "no row": ([], "no row in it"),
}


@pytest.mark.parametrize("case", _BAD)
def test_bad_tables(case, tmp_path):
    rows, message = _BAD[case]
    with pytest.raises(InputError, match=message):
        _read(_write(tmp_path, "train.jsonl", rows))


def test_text_without_pairs(tmp_path):
    (tmp_path / "a.txt").write_text("One\n\nTwo\n")
    with pytest.raises(InputError, match="no two texts in it that belong together"):
        _read(f"titles:text:{tmp_path}/a.txt")


def test_a_source_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="^pairz: no such folder or file: name one, or write titl"):
        _read("pairz")


@pytest.mark.parametrize(
    "loss, similarity, good, bad, message",
    [
        (Squared(), "cosine", [1.000001, -1], 7, "takes scores from -1 to 1: scale them, or"),
        (Squared(), "dot", [0.5], 1.1, "takes scores from -1 to 1"),  # of length 1
        (Squared(), "euclidean", [-2, 0], 0.5, "takes scores from -2 to 0"),
        (Binary(), "cosine", [0, 0.25, 1], 2, "takes scores from 0 to 1: scale them"),
        (Binary(), "", [1, 0], -0.5, "takes scores from 0 to 1"),
        (MarginSquared(), "cosine", [9.5, 7.5], 11.75, ".*by at most 2: scale them, or allow"),
        (Squared(), "", [70, -3], None, ""),
        (MarginSquared(), "", [30, -3], None, ""),
        (CoSent(), "cosine", [5, 0], None, ""),
        (Distribution(), "cosine", [5, -30], None, ""),
    ],
)
def test_scores_that_a_loss_cannot_learn(loss, similarity, good, bad, message, tmp_path):
    """Without a similarity it is a reranker, whose scores have no limits."""
    embedding = Embedding(similarity=similarity) if similarity else None
    recipe = SimpleNamespace(loss=loss, embedding=embedding)
    problem_of = partial(SimilarityRecipe.problem_of, recipe)
    assert problem_of(good) == ""
    if bad is None:
        return
    rows = [{"query": "a", "passage": "b", "negative": ["c"] * len(good[1:]), "score": good}]
    rows.append({**rows[0], "score": [*good[:-1], bad]})
    folder = _write(tmp_path, "train.jsonl", rows)
    at = f"train.jsonl line 2: 'score' is {re.escape(str([*good[:-1], bad]))}: config.loss.name="
    with pytest.raises(InputError, match=f"{at}'{loss.name}' {message}"):
        read_examples(folder, COLUMNS, Texts(), problem_of)
