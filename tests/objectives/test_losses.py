"""Losses as sums and counts, compared with numpy by hand and with PyTorch."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bertjax.base.fields import TEXT
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.interop.published.registry import PUBLISHED
from bertjax.models.encoders.presets import BertSpec
from bertjax.objectives.fine_tuning import FineTuning, TaskObjective
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from bertjax.objectives.task_losses import TASK_LOSSES, Settings
from bertjax.tasks.encoded import IGNORED
from bertjax.training.objective import Objective, Rngs
from bertjax.training.state import TrainState
from bertjax.training.step import means, train_step
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.sums import sums_of

REGRESSION, TOKEN_CLASSIFICATION = map(TaskObjective, ("regression", "token_classification"))
QUESTION_ANSWERING = TaskObjective("question_answering")
BOTH, MLM, LTR = MaskedLMNextSentence(), MaskedLM(), LeftToRight()


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _gradient(objective, outputs, batch, loss):
    total = jax.jit(jax.grad(lambda outputs: sums_of(objective, outputs, batch)[loss][0]))
    return jax.device_get(total(outputs))


@pytest.fixture
def case():
    """Logits and a batch for both tasks; the third row has no prediction."""
    rng = np.random.default_rng(3)
    logits = {
        "masked_lm": rng.normal(0, 3, (3, 5, 11)).astype(np.float32),
        "next_sentence": rng.normal(0, 2, (3, 2)).astype(np.float32),
    }
    weights = np.array([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    ids = np.where(weights > 0, rng.integers(0, 11, (3, 5)), 0)
    ids[0, 1] = logits["masked_lm"][0, 1].argmax()  # at least one is right
    batch = {
        "masked_lm_ids": ids.astype(np.int32),
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([1, 0, 1], np.int32),
    }
    return logits, batch


def _by_hand(logits, labels, weights, gamma: float = 0.0) -> tuple[float, float, float]:
    """The sums of losses, of right answers and of weights, computed for single elements."""
    loss = correct = count = 0.0
    log_probabilities = _log_softmax(logits)
    for index in np.ndindex(labels.shape):
        right = log_probabilities[index][labels[index]]
        loss -= weights[index] * (1 - np.exp(right)) ** gamma * right
        correct += weights[index] * (logits[index].argmax() == labels[index])
        count += weights[index]
    return loss, correct, count


def _assert_sums(actual, expected):
    assert actual.keys() == expected.keys()
    for name, pair in expected.items():
        assert_close(actual[name], pair, err_msg=name)
        assert all(x.dtype == jnp.float32 and x.shape == () for x in actual[name])


def test_both_tasks(case):
    logits, batch = case
    loss, correct, count = _by_hand(
        logits["masked_lm"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    nsp_loss, nsp_correct, _ = _by_hand(
        logits["next_sentence"], batch["next_sentence_labels"], np.ones(3)
    )
    assert (count, correct > 0) == (5, True)
    expected = {
        "mlm_loss": (loss, 5),
        "mlm_accuracy": (correct, 5),
        "nsp_loss": (nsp_loss, 3),
        "nsp_accuracy": (nsp_correct, 3),
        "nsp_random_answers": (
            (logits["next_sentence"][:, 1] > logits["next_sentence"][:, 0]).sum(),
            3,
        ),
    }
    _assert_sums(sums_of(BOTH, logits, batch), expected)
    counts = BOTH.counts(batch)
    assert {name: float(count) for name, count in counts.items()} == {"mlm_loss": 5, "nsp_loss": 3}


def test_masked_lm_alone_has_no_next_sentence(case):
    logits, batch = case
    del batch["next_sentence_labels"], logits["next_sentence"]
    assert sums_of(MLM, logits, batch).keys() == {"mlm_loss", "mlm_accuracy"}
    assert MLM.counts(batch).keys() == {"mlm_loss"}


def test_left_to_right():
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (4, 7, 13)).astype(np.float32)
    targets = rng.integers(0, 13, (4, 7)).astype(np.int32)
    weights = (np.arange(7) < np.array([[6], [1], [0], [7]])).astype(np.float32)
    batch = {"target_ids": targets, "target_weights": weights}
    loss, correct, count = _by_hand(logits, targets, weights)
    sums = sums_of(LTR, {"masked_lm": logits}, batch)
    _assert_sums(sums, {"mlm_loss": (loss, 14), "mlm_accuracy": (correct, 14)})
    assert count == 14
    assert LTR.counts(batch) == {"mlm_loss": 14}


def test_weights_of_zero_give_zero_and_carry_no_gradient(case):
    logits, batch = case
    batch["masked_lm_weights"] = np.zeros((3, 5), np.float32)
    sums = sums_of(BOTH, logits, batch)
    assert tuple(map(float, sums["mlm_loss"])) == (0, 0)
    assert tuple(map(float, sums["mlm_accuracy"])) == (0, 0)
    assert not _gradient(BOTH, logits, batch, "mlm_loss")["masked_lm"].any()


def test_unused_places_do_not_count(case):
    """The label does not matter if the weight is 0."""
    logits, batch = case
    other = np.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], 7)
    one = sums_of(BOTH, logits, batch)
    two = sums_of(BOTH, logits, batch | {"masked_lm_ids": other})
    assert jax.tree.map(float, one) == jax.tree.map(float, two)


def test_sums_of_parts_add_up(case):
    logits, batch = case
    whole = sums_of(BOTH, logits, batch)
    microbatches = [
        sums_of(
            BOTH,
            {name: x[rows] for name, x in logits.items()},
            {name: x[rows] for name, x in batch.items()},
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    for name, pair in whole.items():
        total = tuple(sum(float(each[name][i]) for each in microbatches) for i in (0, 1))
        assert_close(pair, total)


def test_the_gradient_is_softmax_less_one_hot(case):
    logits, batch = case
    gradient = _gradient(BOTH, logits, batch, "mlm_loss")["masked_lm"]
    expected = np.exp(_log_softmax(logits["masked_lm"])) - np.eye(11)[batch["masked_lm_ids"]]
    expected *= batch["masked_lm_weights"][..., None]
    assert_close(gradient, expected)


def test_large_logits_stay_finite():
    logits = np.array([[[1e4, -1e4, np.finfo(np.float32).min]]], np.float32)
    batch = {"target_ids": np.array([[1]]), "target_weights": np.ones((1, 1), np.float32)}
    assert float(sums_of(LTR, {"masked_lm": logits}, batch)["mlm_loss"][0]) == 2e4


@pytest.mark.parametrize(
    "objective, expected",
    [
        (BOTH, True),
        (MLM, False),
        (LTR, False),
    ],
)
def test_uses_next_sentence(objective, expected):
    assert ("next_sentence_labels" in objective.fields) is expected
    assert ("nsp_loss" in objective.loss_weights) is expected
    assert objective.module(BertSpec(vocab_size=7)).next_sentence is expected


@pytest.mark.parametrize(
    "share, warning",
    [
        (0.0, "answers 'B follows A' always"),
        (1.0, "answers 'B is random' always"),
        (1 / 1024, ""),
        (0.5, ""),
    ],
)
def test_a_head_with_one_answer_gives_a_warning(share, warning):
    found = BOTH.warning({"nsp_accuracy": 0.5, "nsp_random_answers": share})
    assert warning in found and bool(found) == bool(warning)
    assert MLM.warning({"mlm_accuracy": 1.0}) == ""


# -------------------------------------------------------------------- fine-tuning (section 4)

ROWS, TOKENS, CLASSES = 5, 7, 3
WEIGHTS = (0.25, 3.0, 1.5)  # of the classes
WEIGHTED = (
    *("sequence_classification", "answer_network", "multiple_choice", "token_classification"),
    "multi_label_classification",
)
CASES = {
    **{name: TaskObjective(name) for name in TASK_LOSSES},
    **{
        f"{setting} {name}": TaskObjective(name, settings)
        for setting, settings in (
            ("weighted", Settings(class_weights=WEIGHTS)),
            ("focal", Settings(class_weights=WEIGHTS, focal_gamma=1.7)),
        )
        for name in WEIGHTED
    },
}
of_cases = pytest.mark.parametrize("objective", CASES.values(), ids=list(CASES))


def _task(objective: Objective, seed: int = 5):
    """Outputs and a batch whose last row is padding; a few rows have padding tokens."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 3, shape).astype(np.float32)

    lengths = np.array([7, 4, 6, 3, 5])
    there = np.arange(TOKENS) < lengths[:, None]
    batch = {
        "input_mask": there.astype(np.int32),
        "is_real_example": np.array([1, 1, 1, 1, 0], np.float32),
    }
    labels = rng.integers(0, CLASSES, ROWS).astype(np.int32)
    if objective.name == "multi_label_classification":
        logits = normal(ROWS, CLASSES)
        targets = rng.random((ROWS, CLASSES)) < 0.4
        targets[1] = logits[1] > 0  # at least one is right
        return {"logits": logits}, batch | {"targets": targets.astype(np.float32)}
    if objective.name == "regression":
        return {"logits": normal(ROWS, 1)}, batch | {"targets": normal(ROWS)}
    if objective.name == "question_answering":
        outputs = {"start": normal(ROWS, TOKENS), "end": normal(ROWS, TOKENS)}
        positions = {
            f"{side}_positions": (rng.integers(0, 100, ROWS) % lengths).astype(np.int32)
            for side in ("start", "end")
        }
        for side in ("start", "end"):  # both are right in one row
            best = np.where(there, outputs[side], -np.inf).argmax(-1)
            positions[f"{side}_positions"][0] = best[0]
        return outputs, batch | positions
    if objective.name == "token_classification":
        classified = there & (rng.random(there.shape) < 0.6)
        labels = np.where(classified, rng.integers(0, CLASSES, there.shape), -1).astype(np.int32)
        return {"logits": normal(ROWS, TOKENS, CLASSES)}, batch | {"label_ids": labels}
    if objective.name == "tag_sequence":
        labels = rng.integers(0, CLASSES, there.shape).astype(np.int32)
        path = np.where(rng.random(there.shape) < 0.7, labels, 0).astype(np.float32)
        outputs = {"path": path, "log_likelihood": -np.abs(normal(ROWS))}
        return outputs, batch | {"label_ids": np.where(there, labels, -1)}
    return {"logits": normal(ROWS, CLASSES)}, batch | {"label_ids": labels}


def _task_by_hand(objective: Objective, outputs, batch) -> dict[str, tuple[float, float]]:
    """The sums and counts, computed for single examples or tokens."""
    real = batch["is_real_example"]
    if objective.name == "regression":
        errors = [(outputs["logits"][i, 0] - batch["targets"][i]) ** 2 for i in range(ROWS)]
        return {"task_loss": (np.dot(errors, real), real.sum())}
    if objective.name == "question_answering":
        loss = correct = 0.0
        for i in np.flatnonzero(real):
            length = batch["input_mask"][i].sum()
            right = True
            for side in ("start", "end"):
                logits, place = outputs[side][i, :length], batch[f"{side}_positions"][i]
                loss -= _log_softmax(logits)[place] / 2
                right &= logits.argmax() == place
            correct += right
        assert 0 < correct < real.sum()
        return {"task_loss": (loss, real.sum()), "accuracy": (correct, real.sum())}
    if objective.name == "tag_sequence":
        words = real[:, None] * (batch["label_ids"] >= 0)
        correct = ((outputs["path"] == batch["label_ids"]) * words).sum()
        assert 0 < correct < words.sum()
        loss = -np.dot(outputs["log_likelihood"], real)
        return {"task_loss": (loss, real.sum()), "accuracy": (correct, words.sum())}
    gamma = objective.settings.focal_gamma
    of_classes = np.array(objective.settings.class_weights or [1] * CLASSES)
    if objective.name == "multi_label_classification":
        loss = correct = 0.0
        for i in np.flatnonzero(real):
            logits, labels = outputs["logits"][i].astype(float), batch["targets"][i] == 1
            p = np.where(labels, 1, -1) * logits
            p = 1 / (1 + np.exp(-p))  # of the right answers
            losses = -np.where(labels, of_classes, 1) * np.log(p) * (1 - p) ** gamma
            loss += losses.mean()
            correct += ((logits > 0) == labels).all()
        assert 0 < correct < real.sum()
        return {"task_loss": (loss, real.sum()), "accuracy": (correct, real.sum())}
    labels = batch["label_ids"]
    weights = real[:, None] * (labels >= 0) if labels.ndim == 2 else real
    weights = weights * of_classes[labels]
    loss, correct, count = _by_hand(outputs["logits"], labels, weights, gamma)
    assert 0 < correct < count
    return {"task_loss": (loss, count), "accuracy": (correct, count)}


@of_cases
def test_tasks(objective):
    outputs, batch = _task(objective)
    expected = _task_by_hand(objective, outputs, batch)
    _assert_sums(sums_of(objective, outputs, batch), expected)
    counts = objective.counts(batch)
    assert {name: float(count) for name, count in counts.items()} == {
        "task_loss": expected["task_loss"][1]
    }


def test_a_task_beside_a_penalty():
    """The penalty counts once for each example, and rows that fill up a batch have none."""
    outputs, batch = _task(REGRESSION)
    objective, real = FineTuning({"": REGRESSION}, {"penalty": 0.3}), batch["is_real_example"]
    assert 0 < real.sum() < ROWS
    penalty = np.where(real > 0, np.float32(1.7), 100)
    found = sums_of(objective, outputs | {"penalty": penalty}, batch)
    expected = _task_by_hand(REGRESSION, outputs, batch)
    _assert_sums(found, expected | {"penalty": (1.7 * real.sum(), real.sum())})
    assert objective.counts(batch) == {"task_loss": real.sum(), "penalty": real.sum()}
    assert objective.loss_weights == {"task_loss": 1.0, "penalty": 0.3}
    assert objective.fields == REGRESSION.fields


def test_a_batch_of_one_of_several_tasks():
    """Its own part of the model reads it, and drops elements; its loss is that of the task."""
    objective = FineTuning({"some": TOKEN_CLASSIFICATION, "numbers": REGRESSION})
    (outputs, own), seen = _task(REGRESSION), []
    batch, key = {f"numbers/{name}": x for name, x in own.items()}, jax.random.key(7)

    def model(params, inputs, dropout=None, part=""):
        seen.append((params, part, inputs.keys(), dropout))
        return outputs

    for rngs in (Rngs(key), Rngs(key, deterministic=True)):
        found = jax.jit(lambda batch, rngs=rngs: objective.sums(model, 5, batch, rngs)[0])(batch)
        expected = _task_by_hand(REGRESSION, outputs, own)["task_loss"]
        _assert_sums(found, {"task_loss": expected, "numbers/task_loss": expected})
    assert [call[:3] for call in seen] == [(5, "numbers", own.keys())] * 2
    assert seen[0][3] is key and seen[1][3] is None
    assert objective.counts(batch) == {"task_loss": own["is_real_example"].sum()}
    assert {name.partition("/")[0] for name in objective.fields} == {"some", "numbers"}


def _assert_same_task(objective: Objective, one, two) -> None:
    for outputs, batch in (one, two):
        assert set(batch) <= {"input_mask", *objective.fields}
        assert set(outputs) == set(one[0])
    sums = [sums_of(objective, *each) for each in (one, two)]
    assert jax.tree.map(float, sums[0]) == jax.tree.map(float, sums[1])
    counts = [objective.counts(batch) for _, batch in (one, two)]
    assert jax.tree.map(float, counts[0]) == jax.tree.map(float, counts[1])


@of_cases
def test_rows_that_fill_up_a_batch_do_not_count(objective):
    """Their content does not matter, and they get no gradient."""
    outputs, batch = _task(objective)
    other_outputs, other_batch = _task(objective, seed=6)
    fill = batch["is_real_example"] == 0

    def mixed(one, other):
        return {name: np.where(_over(fill, x), other[name], x) for name, x in one.items()}

    _assert_same_task(
        objective, (outputs, batch), (mixed(outputs, other_outputs), mixed(batch, other_batch))
    )
    gradient = _gradient(objective, outputs, batch, "task_loss")
    for name, leaf in gradient.items():
        learns = name != "path"  # of tags, which only the accuracy reads
        assert (leaf[-1] == 0).all() and all((row != 0).any() == learns for row in leaf[:-1])


def _over(rows: np.ndarray, array: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, *[1] * (array.ndim - 1))


def test_tokens_that_are_not_classified_do_not_count():
    outputs, batch = _task(TOKEN_CLASSIFICATION)
    ignored = batch["label_ids"] < 0
    other = np.where(ignored[..., None], 1e4, outputs["logits"])
    _assert_same_task(TOKEN_CLASSIFICATION, (outputs, batch), ({"logits": other}, batch))
    gradient = _gradient(TOKEN_CLASSIFICATION, outputs, batch, "task_loss")["logits"]
    assert (gradient[ignored] == 0).all()


def test_padding_is_no_answer():
    """The loss is the same for any number of padding positions."""
    outputs, batch = _task(QUESTION_ANSWERING)

    def wider(array, value):
        return np.pad(array, ((0, 0), (0, 5)), constant_values=value)

    longer = {name: wider(x, 50.0) for name, x in outputs.items()}
    mask = wider(batch["input_mask"], 0)
    _assert_same_task(QUESTION_ANSWERING, (outputs, batch), (longer, batch | {"input_mask": mask}))


@pytest.mark.parametrize("accumulate", [2, 3])
def test_microbatches_of_tagged_text_give_the_gradient_of_the_whole(accumulate):
    """The labelled tokens may be spread over the microbatches in any way."""
    rng = np.random.default_rng(8)
    labels = np.full((6, TOKENS), -1, np.int32)
    for row, count in enumerate([7, 0, 1, 5, 0, 2]):
        labels[row, :count] = rng.integers(0, CLASSES, count)
    batch = {
        "x": rng.normal(size=(6, TOKENS, 4)).astype(np.float32),
        "label_ids": labels,
        "is_real_example": np.array([1, 1, 1, 1, 1, 0], np.float32),
    }
    params = {"kernel": rng.normal(size=(4, CLASSES)).astype(np.float32)}
    options = dict(
        model=lambda params, microbatch, dropout: {"logits": microbatch["x"] @ params["kernel"]},
        objective=TOKEN_CLASSIFICATION,
        optimizer=optax.with_extra_args_support(optax.sgd(1.0)),
    )

    def update(accumulate: int):
        state = TrainState(jnp.int32(0), params, options["optimizer"].init(params))
        step = jax.jit(partial(train_step, accumulate=accumulate, **options))
        state, sums = step(state, {}, batch, 1.0, 0)
        return state.params["kernel"] - params["kernel"], sums

    (whole, sums), (parted, parted_sums) = update(1), update(accumulate)
    assert_close(parted, whole, size=1)
    assert_close(parted_sums, sums)
    logits = batch["x"] @ params["kernel"]
    by_hand, _, count = _by_hand(logits, labels, (labels >= 0) * batch["is_real_example"][:, None])
    assert count == 13
    assert_close(sums["loss"][0], by_hand / 13)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", ["sequence_classification", "multi_label_classification"])
def test_a_focal_loss_and_its_gradient_are_finite_where_all_is_learned(name, gamma):
    """There the cross-entropy is 0 in float32; what is wrong keeps its whole loss."""
    objective = TaskObjective(name, Settings(focal_gamma=gamma))
    logits = np.array([[200, -200], [-200, 200], [0.1, -0.1]], np.float32)
    labels = {"label_ids": np.zeros(3, int), "targets": np.eye(2, dtype=np.float32)[[0, 0, 0]]}
    batch = labels | {"is_real_example": np.ones(3, np.float32)}

    def losses(x):
        return objective.values({"logits": x}, batch)["task_loss"]["task_loss"]

    def total(x):
        each = losses(x)
        return each.sum(), each

    gradient, each = jax.device_get(jax.jit(jax.grad(total, has_aux=True))(logits))
    right, wrong, _ = each
    assert right == 0 and wrong == {"sequence_classification": 400}.get(name, 200)
    assert np.isfinite(gradient).all() and (gradient[0] == 0).all() and (gradient[2] != 0).all()


@pytest.mark.peers
@pytest.mark.parametrize("name", WEIGHTED)
def test_a_weighted_loss_is_that_of_torch(name):
    import torch

    objective, weights = CASES[f"weighted {name}"], torch.tensor(WEIGHTS)
    outputs, batch = _task(objective, seed=7)
    batch["is_real_example"] = np.ones(ROWS, np.float32)
    total, count = sums_of(objective, outputs, batch)["task_loss"]
    logits = torch.tensor(outputs["logits"]).reshape(-1, CLASSES)
    if "targets" in batch:
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(
            logits, torch.tensor(batch["targets"])
        )
    else:
        labels = torch.tensor(batch["label_ids"]).long().reshape(-1)
        loss = torch.nn.CrossEntropyLoss(weights, ignore_index=IGNORED)(logits, labels)
    assert_close(total / count, loss.item())


@pytest.mark.peers
@pytest.mark.parametrize(
    "objective",
    [
        TaskObjective(name)
        for name, row in TASK_LOSSES.items()
        if row.head_type in PUBLISHED["bert"].classes
    ],
    ids=lambda objective: objective.name,
)
def test_the_loss_is_that_of_transformers(make_pretrained, tmp_path, objective):
    """Both have the same weights, and take the mean over the labels that count."""
    import torch
    import transformers

    model = make_pretrained(PUBLISHED["bert"].classes[objective.row.head_type])
    own = ("regression", "multi_label_classification")
    problem_type = objective.name if objective.name in own else "single_label_classification"
    if model.class_name == "BertForSequenceClassification":
        model = dataclasses.replace(model, task={"problem_type": problem_type})
    if objective.name == "regression":
        head = {name: leaf[..., :1] for name, leaf in model.params["classifier"].items()}
        params = {**model.params, "classifier": head}
        model = dataclasses.replace(model, params=params, classes=("LABEL_0",))
    write_hugging_face(model, tmp_path)
    peer = getattr(transformers, model.class_name).from_pretrained(tmp_path)

    rng = np.random.default_rng(9)
    shape = (ROWS, CLASSES, TOKENS) if objective.name == "multiple_choice" else (ROWS, TOKENS)
    _, batch = _task(objective)
    batch["is_real_example"] = np.ones(ROWS, np.float32)
    # transformers counts padding as a possible answer.
    lengths = rng.integers(3, TOKENS + 1, shape[:-1])
    if objective.name == "question_answering":
        lengths[:] = TOKENS
    there = np.arange(TOKENS) < lengths[..., None]
    batch |= {
        "input_ids": rng.integers(0, model.spec.vocab_size, shape),
        "input_mask": there.astype(np.int32),
        "token_type_ids": ((np.arange(TOKENS) >= 2) & there).astype(np.int32),
    }
    apply = jax.jit(partial(model.model().apply, deterministic=True))
    outputs = apply({"params": model.params}, batch)
    total, count = sums_of(objective, outputs, batch)["task_loss"]

    labels = {
        "label_ids": "labels",
        "targets": "labels",
        "start_positions": "start_positions",
        "end_positions": "end_positions",
    }
    reference = {labels[name]: torch.tensor(batch[name]) for name in labels if name in batch}
    if "targets" not in batch:
        reference = {name: x.long().masked_fill(x < 0, -100) for name, x in reference.items()}
    ids, mask, segments = (torch.tensor(batch[name]).long() for name in TEXT)
    with torch.no_grad():
        out = peer(input_ids=ids, attention_mask=mask, token_type_ids=segments, **reference)
    assert_close(total / count, out.loss.item())


def test_the_focal_loss():
    """Each token's loss times (1 - p)^2; a token that is certain has neither loss nor gradient."""
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(2, 3, 11)).astype(np.float32)
    logits[0, 0, 4] = 90
    weights = np.array([[1, 1, 0], [1, 1, 1]], np.float32)
    labels = np.array([[4, 2, 9], [0, 10, 3]])
    batch = {"masked_lm_ids": labels, "masked_lm_weights": weights}
    objective = MaskedLM(focal=2.0)

    found = means(sums_of(objective, {"masked_lm": logits}, batch))
    p = np.exp(np.take_along_axis(_log_softmax(logits), labels[..., None], 2)[..., 0])
    cross_entropy = -np.log(p) * weights
    focal = ((1 - p) ** 2 * cross_entropy).sum() / 5
    assert found["focal_loss"] == pytest.approx(focal, rel=rounding(1))
    assert found["mlm_loss"] == pytest.approx(cross_entropy.sum() / 5, rel=rounding(1))
    assert objective.loss_weights == {"focal_loss": 1.0}
    gradient = _gradient(objective, {"masked_lm": logits}, batch, "focal_loss")["masked_lm"]
    assert np.isfinite(gradient).all() and np.abs(gradient[0, 0]).max() < 1e-6
    assert "focal_loss" not in sums_of(MaskedLM(), {"masked_lm": logits}, batch)
    with pytest.raises(ValueError, match="focal=0.5: must be 0, or at least 1"):
        MaskedLM(focal=0.5)


def test_the_z_loss():
    """The mean of log(Z)^2 over the predicted tokens, and its weight in what is minimized."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(3, 4, 11)).astype(np.float32)
    weights = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], np.float32)
    batch = {
        "masked_lm_ids": rng.integers(11, size=(3, 4)),
        "masked_lm_weights": weights,
    }
    objective = MaskedLM(z_loss=0.01)
    found = means(sums_of(objective, {"masked_lm": logits}, batch))
    log_z = np.log(np.exp(logits.astype(np.float64)).sum(-1))
    expected = (log_z**2 * weights).sum() / weights.sum()
    assert found["z_loss"] == pytest.approx(expected, rel=rounding(1))
    assert objective.loss_weights == {"mlm_loss": 1.0, "z_loss": 0.01}
    assert "z_loss" not in sums_of(MaskedLM(), {"masked_lm": logits}, batch)
