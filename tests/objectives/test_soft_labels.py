"""Fine-tuning with what a teacher predicts: tables, batches and losses."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from scipy.special import softmax

from bertjax.base.errors import InputError
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.objectives.task_losses import Settings
from bertjax.tasks.table import Table
from bertjax.tasks.task import TRAIN
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.step import means
from tests.helpers.closeness import rounding
from tests.helpers.sums import sums_of

ROWS = [
    ("the cat", "no", {"no": 0.7, "yes": 0.2, "maybe": 0.1}),
    ("a dog", "yes", {"yes": 1.0, "maybe": 0.0, "no": 0.0}),
    ("a cat runs", "maybe", {"no": 0.25, "maybe": 0.5, "yes": 0.25}),
]


def _table(folder, rows=ROWS, **fields) -> Table:
    names = ("text", "given_label", "probabilities")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines))
    return Table(str(folder), label="given_label", soft_label="probabilities", **fields)


def _batch(task, vocabulary, rows=4):
    """The objective of the task, and a batch of its training examples and a row of padding."""
    objective = TaskObjective(task.family.objective, Settings(**task.objective_settings))
    encoded = task.family.encode(task.read(TRAIN), Tokenizer.open(vocabulary), 16, labelled=True)
    return objective, encoded.batch(objective.fields, np.arange(len(encoded)), rows, 8, 0)


def test_the_loss_of_classes(tmp_path, vocabulary):
    task = _table(tmp_path, soft_share=0.3, temperature=3.0)
    objective, batch = _batch(task, vocabulary)
    wanted = [[0.1, 0.7, 0.2], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]]  # maybe, no, yes
    np.testing.assert_array_equal(batch["soft_labels"][:3], np.float32(wanted))
    assert batch["label_ids"].tolist()[:3] == [1, 2, 0]

    logits = np.random.default_rng(0).normal(0, 2, (4, 3))
    found = means(sums_of(objective, {"logits": logits.astype(np.float32)}, batch))
    hard = -np.log(softmax(logits, -1))[np.arange(3), [1, 2, 0]]
    reference = softmax(np.log(np.maximum(wanted, 1e-30)) / 3, -1)
    result = softmax(logits[:3] / 3, -1)
    soft = 9 * (reference * (np.log(reference) - np.log(result))).sum(-1)
    assert found["task_loss"] == pytest.approx((0.7 * hard + 0.3 * soft).mean(), rel=rounding(1))
    alone, _ = _batch(_table(tmp_path, soft_share=1.0, temperature=1.0), vocabulary)
    same = {"logits": np.log(np.maximum(batch["soft_labels"], 1e-30))}
    assert means(sums_of(alone, same, batch))["task_loss"] == pytest.approx(0, abs=rounding(1))

    def loss(logits):
        total, count = sums_of(objective, {"logits": logits}, batch)["task_loss"]
        return total / count

    assert np.isfinite(jax.jit(jax.grad(loss))(logits.astype(np.float32))).all()


def test_the_loss_of_a_regression(tmp_path, vocabulary):
    rows = [("the cat", 1.5, 2.0), ("a dog", "3", -1), ("a cat runs", 0, 0.5)]
    task = _table(tmp_path, rows, problem="regression", soft_share=0.25)
    objective, batch = _batch(task, vocabulary)
    outputs = {"logits": np.array([[1], [2], [3], [9]], np.float32)}
    found = means(sums_of(objective, outputs, batch))["task_loss"]
    true, soft = np.array([0.25, 1.0, 9.0]), np.array([1.0, 9.0, 6.25])
    assert found == pytest.approx((0.75 * true + 0.25 * soft).mean())


def test_without_a_teacher_nothing_changes(tmp_path, vocabulary):
    task = dataclasses.replace(_table(tmp_path), soft_label="")
    objective, batch = _batch(task, vocabulary)
    assert objective == TaskObjective("sequence_classification")
    assert task.objective_settings == {} and "soft_labels" not in {**batch, **objective.fields}


@pytest.mark.parametrize(
    "value, message",
    [
        ("no", r"train.jsonl line 2: 'probabilities' is 'no', not an object with a probability"),
        ({"no": True, "yes": 0, "maybe": 0}, "not an object with a probability"),
        ({"no": 1.0}, "line 2: soft label .* of each of 'maybe', 'no', 'yes'"),
        ({"no": 0.5, "yes": 0.6, "maybe": 0.5}, "line 2: soft label .*: must sum to 1"),
        ({"no": 1.5, "yes": -0.5, "maybe": 0}, "line 2: soft label .*: must sum to 1"),
    ],
)
def test_soft_labels_that_are_none(tmp_path, vocabulary, value, message):
    with pytest.raises(InputError, match=message):
        _batch(_table(tmp_path, [ROWS[0], ("a dog", "yes", value), ROWS[2]]), vocabulary)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(problem="multi_label"), "soft_label='probabilities': multi_label cannot learn from"),
        (dict(soft_share=0), r"soft_share=0: must be in \(0, 1\]"),
        (dict(temperature=0), r"temperature=0: must be above 0"),
    ],
)
def test_settings_that_are_refused(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):  # InputError is one
        _table(tmp_path, **fields)
