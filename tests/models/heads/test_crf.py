"""The CRF: its likelihoods and best paths are those of a sum and a maximum over all paths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.heads.crf import Crf
from bertjax.objectives.fine_tuning import TaskObjective
from tests.helpers.closeness import assert_close, rounding

TAGS, LENGTH = 3, 7
# Words at odd places, in all places, one alone at the end, and none.
MASK = np.array(
    [[0, 1, 1, 0, 1, 0, 1], [1] * LENGTH, [0, 0, 0, 0, 0, 0, 1], [0] * LENGTH], np.int32
)


@pytest.fixture(scope="module")
def case():
    """Logits, parameters and tags at random; tags of other tokens are -1."""
    rng = np.random.default_rng(3)
    shape = len(MASK), LENGTH
    params = {
        name: rng.normal(0, 1.5, size).astype(np.float32)
        for name, size in (("between", (TAGS, TAGS)), ("first", TAGS), ("last", TAGS))
    }
    params = jax.tree.map(jnp.asarray, params)
    tags = np.where(MASK, rng.integers(0, TAGS, shape), -1)
    return rng.normal(0, 1.5, (*shape, TAGS)).astype(np.float32), params, tags


def _apply(params, logits, inputs):
    return jax.device_get(jax.jit(Crf(TAGS).apply)({"params": params}, logits, inputs))


@pytest.fixture(scope="module")
def outputs(case):
    logits, params, tags = case
    inputs = {"word_mask": MASK, "label_ids": tags}
    return _apply(params, logits, inputs)


def _score(logits, params, path):
    """The score of the tags of the words alone."""
    if not path:
        return 0.0
    score = params["first"][path[0]] + params["last"][path[-1]]
    score += sum(params["between"][pair] for pair in itertools.pairwise(path))
    return score + sum(logits[place, tag] for place, tag in enumerate(path))


@pytest.mark.parametrize("row", range(len(MASK)))
def test_all_paths(row, case, outputs):
    logits, params, tags = jax.device_get(case)
    words = MASK[row] > 0
    paths = list(itertools.product(range(TAGS), repeat=int(words.sum())))
    scores = np.array([_score(logits[row, words], params, path) for path in paths])
    gold = paths.index(tuple(tags[row, words]))
    wanted = scores[gold] - np.log(np.exp(scores).sum())
    assert_close(outputs["log_likelihood"][row], wanted, size=np.abs(scores).max())
    assert tuple(outputs["path"][row, words]) == paths[scores.argmax()]


def test_other_tokens_change_nothing(case, outputs):
    logits, params, tags = case
    others = np.where(MASK[..., None], logits, 1e3)
    inputs = {"word_mask": MASK, "label_ids": np.where(MASK, tags, 2)}
    found = _apply(params, others, inputs)
    assert_close(found["log_likelihood"], outputs["log_likelihood"])
    np.testing.assert_array_equal(found["path"] * MASK, outputs["path"] * MASK)


def test_gradient_is_what_is_expected_less_what_is_there(case):
    """Of the logits: the marginal probability of each tag, less 1 at the right one."""
    logits, params, tags = case

    def loss(logits):
        inputs = {"word_mask": MASK, "label_ids": tags}
        return -Crf(TAGS).apply({"params": params}, logits, inputs)["log_likelihood"].sum()

    gradient = np.asarray(jax.jit(jax.grad(loss))(logits))
    marginals = gradient + np.eye(TAGS)[np.maximum(tags, 0)] * MASK[..., None]
    assert_close(marginals.sum(-1), MASK)
    assert (marginals > -rounding(1)).all() and (gradient[MASK == 0] == 0).all()


def test_loss_is_the_mean_over_sequences_and_accuracy_over_words(case, outputs):
    _, _, tags = case
    batch = {"label_ids": tags, "is_real_example": np.array([1, 1, 0, 1], np.float32)}
    objective = TaskObjective("tag_sequence")
    values, weights = objective.values(outputs, batch), objective.weights(batch)
    loss = (values["task_loss"]["task_loss"] * weights["task_loss"]).sum()
    assert_close(loss, -outputs["log_likelihood"][[0, 1, 3]].sum())
    assert weights["words"].sum() == 4 + 7
    right = (outputs["path"][:2] == tags[:2]).sum()
    assert (values["words"]["accuracy"] * weights["words"]).sum() == right
