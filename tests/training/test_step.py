"""One update: the gradient of the whole batch, for any number of microbatches."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from bertjax.models.encoders.presets import BertSpec
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.training import compiled_step
from bertjax.training.compiled_step import CompiledStep
from bertjax.training.model import Model
from bertjax.training.state import TrainState
from bertjax.training.step import add_sums, means, train_step
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.training import toy

# The change of the parameters is minus the gradient.
SGD = optax.with_extra_args_support(optax.sgd(1.0))


def _update(params, batch, accumulate, seed=0, *, model=toy.MODEL, objective=toy.OBJECTIVE):
    state = TrainState(jnp.int32(0), params, SGD.init(params))
    step = partial(
        train_step, model=model, objective=objective, optimizer=SGD, accumulate=accumulate
    )
    after, sums = jax.jit(step)(state, {}, batch, 1.0, seed)
    assert int(after.step) == 1
    gradient = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), params, after.params)
    return gradient, means(jax.device_get(sums))


@pytest.fixture(scope="module")
def bert():
    """`_update` for a small model without dropout and a batch of which one row has most
    predictions; and the objective.
    """
    spec = BertSpec(
        vocab_size=97,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=13,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    objective = MaskedLMNextSentence()
    model = objective.model(spec)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 97, (6, 13)).astype(np.int32)
    weights = (np.arange(5) < np.array([[5], [1], [0], [4], [0], [0]])).astype(np.float32)
    batch = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.tile(np.arange(5, dtype=np.int32), (6, 1)),
        "masked_lm_ids": ids[:, 2:7],
        "masked_lm_weights": weights,
        "next_sentence_labels": np.array([0, 1, 1, 0, 1, 1], np.int32),
    }
    params = nn.unbox(jax.jit(model.init)(jax.random.key(1)))
    return partial(_update, params, batch, model=model), objective


@pytest.fixture(scope="module")
def whole(bert):
    update, objective = bert
    return update(1, objective=objective)


@pytest.mark.parametrize("accumulate", others_slow([2, 3, 6], 3))
def test_parts_give_the_gradient_of_the_whole(bert, whole, accumulate):
    update, objective = bert
    gradient, metrics = update(accumulate, objective=objective)
    assert_close((gradient, metrics), whole)


def test_the_loss_is_the_sum_of_both_means(whole):
    gradient, metrics = whole
    assert_close(metrics["loss"], metrics["mlm_loss"] + metrics["nsp_loss"])
    norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
    assert_close(metrics["grad_norm"], norm)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_loss_has_its_weight(accumulate):
    """The error of the weighted rows counts half; that of all rows does not, and is reported."""

    class Weighted(toy.Regression):
        loss_weights = {"mlm_loss": 0.5, "all_loss": 0.0}

        def weights(self, batch):
            return super().weights(batch) | {"all_loss": jnp.ones_like(batch["weight"])}

        def values(self, outputs, batch):
            found = super().values(outputs, batch)
            return found | {"all_loss": {"all_loss": found["mlm_loss"]["mlm_loss"]}}

    params, batch = toy.params(), {n: x[:6] for n, x in toy.batch(3, slice(None)).items()}
    still = Model.of(toy.Line(dropped=0.0), toy.X)
    gradient, metrics = _update(params, batch, accumulate, model=still, objective=Weighted())
    alone, _ = _update(params, batch, 1, model=still)
    errors = np.square(batch["x"] @ params["w"] + params["b"] - batch["y"])
    means = [np.average(errors, weights=batch["weight"]), errors.mean()]
    assert_close([metrics["mlm_loss"], metrics["all_loss"]], means)
    assert_close(metrics["loss"], means[0] / 2)
    assert_close(
        gradient, jax.tree.map(lambda leaf: leaf / 2, alone), size=np.abs(params["w"]).max()
    )


def test_a_batch_without_predictions_changes_nothing():
    params = toy.params()
    batch = toy.batch(0, slice(None))
    batch["weight"] = np.zeros(toy.ROWS, np.float32)
    for accumulate in (1, 4):
        gradient, metrics = _update(params, batch, accumulate)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))
        assert (metrics["loss"], metrics["grad_norm"]) == (0, 0)


def test_the_seed_and_the_step_decide_dropout():
    params, batch = toy.params(), toy.batch(0, slice(None))

    def loss(seed, step, accumulate=1):
        state = TrainState(jnp.int32(step), params, SGD.init(params))
        options = dict(model=toy.MODEL, objective=toy.OBJECTIVE, optimizer=SGD)
        update = jax.jit(partial(train_step, accumulate=accumulate, **options))
        return float(update(state, {}, batch, 1.0, seed)[1]["loss"][0])

    assert loss(1, 0) == loss(1, 0)
    assert len({loss(1, 0), loss(2, 0), loss(1, 1), loss(1, 0, 2)}) == 4


@pytest.fixture
def equal_rows():
    """Parameters, a batch of equal rows, an objective; and the microbatches' losses, in order.

    If all microbatches had the same dropout mask, these losses would be equal.
    """
    batch = {name: np.repeat(x[:1], 8, axis=0) for name, x in toy.batch(0, slice(None)).items()}
    batch["weight"] = np.ones(8, np.float32)
    seen = []

    class Seen(toy.Regression):
        def sums(self, *arguments):
            sums, carry = super().sums(*arguments)
            jax.debug.callback(lambda x: seen.append(float(x)), sums["mlm_loss"][0])
            return sums, carry

    return toy.params(), batch, Seen(), seen


def test_microbatches_have_masks_of_their_own(equal_rows):
    params, batch, objective, seen = equal_rows
    _update(params, batch, 4, objective=objective)
    jax.effects_barrier()
    assert len(set(seen)) == 4


def _by_microbatches(params, batch, sizes, seed=0, **changes):
    """Computes the same as `_update`, with microbatches of the given numbers of rows."""
    experiment = toy.experiment(toy.placement(1), optimizer=SGD, **changes)
    step = CompiledStep(experiment, accumulate=1)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    microbatches = [{name: jnp.asarray(x[some]) for name, x in batch.items()} for some in rows]
    # The parameters are copied, because the update donates its arguments.
    state = TrainState(jnp.int32(0), jax.tree.map(jnp.copy, params), SGD.init(params))
    after, sums = step(state, microbatches, 1.0, seed)
    assert int(after.step) == 1
    gradient = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), params, after.params)
    return gradient, means(jax.device_get(sums))


@pytest.mark.parametrize("sizes", [(8,), (1, 7), (3, 2, 3)])
def test_microbatches_of_any_shape_give_the_gradient_of_the_whole(sizes):
    params, batch = toy.params(), toy.batch(3, slice(None))
    still = Model.of(toy.Line(dropped=0.0), toy.X)
    whole, metrics = _update(params, batch, 1, model=still)
    gradient, found = _by_microbatches(params, batch, sizes, model=still)
    assert_close((gradient, found), (whole, metrics))


def test_dropout_of_microbatches_of_any_shape(equal_rows):
    """Each microbatch has its own masks, which depend on the seed."""
    params, batch, objective, seen = equal_rows
    for seed in (1, 1, 2):
        _by_microbatches(params, batch, (4, 4), seed, objective=objective)
        jax.effects_barrier()
    assert len(seen) == 6 and seen[:2] == seen[2:4]
    assert len({*seen[:2], *seen[4:]}) == 4


def test_add_sums_and_means():
    one = {"a": (np.float32(1.5), np.float32(2)), "b": (np.float32(3), np.float32(0))}
    total = add_sums(add_sums({}, one), one)
    assert total == {"a": (3.0, 4.0), "b": (6.0, 0.0)}
    assert means(total) == {"a": 0.75, "b": 6.0}


def test_xla_knows_the_options_for_gpus():
    """An unknown one would end every run on a GPU at its first compilation."""
    compiled = jax.jit(lambda x: x + 1, compiler_options=compiled_step.OPTIONS["gpu"])
    assert compiled(1.0) == 2.0
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option"):
        jax.jit(lambda x: x + 1, compiler_options={"xla_gpu_no_such": 0})(1.0)
