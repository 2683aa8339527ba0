"""The objective both_directions: its losses, its states, and the same on one device and on many."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from scipy.special import log_softmax

from bertjax.base.fields import NUM_CHARACTERS
from bertjax.models.encoders.elmo.encoder import states_shape
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.objectives.both_directions import BothDirections
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Trainer
from bertjax.training.objective import Rngs
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import data_parallel, make_placement
from bertjax.training.step import means
from tests.helpers.carried import train_three_batches
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.small_elmo import small_elmo

ROWS, LENGTH, WORDS = 8, 5, 37
SPEC = dataclasses.replace(
    small_elmo().spec, vocab_size=WORDS, num_hidden_layers=2, hidden_dropout_prob=0.0
)
OBJECTIVE = BothDirections(sampled=9)
# Widths that divide over the devices.
_DIVIDED = dict(vocab_multiple=8, filters=((1, 8), (2, 16)), character_size=8)
_MANY = 4000  # terms: sums of 20 to 50 in each of 20 steps, whose large weights magnify errors


def _batch(number: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    drawn = partial(rng.integers, 1, NUM_CHARACTERS, (ROWS, length, 50), np.int32)
    return {
        "characters": drawn(),
        "backward_characters": drawn(),
        "input_mask": np.ones((ROWS, length), np.int32),
        "forward_ids": rng.integers(0, WORDS + 5, (ROWS, length)).astype(np.int32),
        "backward_ids": rng.integers(0, WORDS + 5, (ROWS, length)).astype(np.int32),
    }


def _states(value: float = 0.0) -> dict[str, np.ndarray]:
    return {"states": np.full((ROWS, *states_shape(SPEC)), value, np.float32)}


@pytest.fixture(scope="module")
def params():
    """The encoder's large random weights, and an initial softmax."""
    initial = nn.unbox(jax.jit(OBJECTIVE.model(SPEC).init)(jax.random.key(1)))
    elmo = small_elmo(vocab_size=WORDS, num_hidden_layers=2).params["elmo"]
    assert jax.tree.map(np.shape, initial["elmo"]) == jax.tree.map(np.shape, elmo)
    return initial | {"elmo": jax.tree.map(jnp.asarray, elmo)}


@partial(jax.jit, static_argnames=("objective", "deterministic"))
def _compute(params, batch, objective, deterministic):
    rngs = Rngs(jax.random.key(2), deterministic)
    return objective.outputs(OBJECTIVE.model(SPEC), params, batch, rngs)


def _outputs(params, batch, objective=OBJECTIVE, deterministic=True):
    return jax.device_get(_compute(params, batch, objective, deterministic))


def test_each_direction_reads_its_own_words(params):
    """As two readings of the encoder alone, of which one has the words of the way back."""
    batch = _batch(0) | _states()
    found = _outputs(params, batch)
    encoder = make_encoder(SPEC)

    @jax.jit
    def read(characters):
        alone = {"characters": characters, "input_mask": batch["input_mask"]}
        return encoder.apply(
            {"params": params["elmo"]}, alone, deterministic=True, method="hidden_states"
        )[-1]

    both = read(batch["characters"]), read(batch["backward_characters"])
    forward, backward = jax.device_get(both)
    width = SPEC.projection_size
    assert_close(found["sequence"][..., :width], forward[..., :width], _MANY)
    assert_close(found["sequence"][..., width:], backward[..., width:], _MANY)
    table = jax.device_get(params["next_word"])
    for name, x in (("forward", forward[..., :width]), ("backward", backward[..., width:])):
        logits = log_softmax(x @ table["kernel"].T + table["bias"], -1)
        ids = np.where(batch[f"{name}_ids"] < WORDS, batch[f"{name}_ids"], 2)
        wanted = -np.take_along_axis(logits, ids[..., None], -1)[..., 0]
        assert_close(found[f"{name}_loss"], wanted, _MANY)


def test_losses_are_means_and_perplexities(params):
    batch, model = _batch(0) | _states(), OBJECTIVE.model(SPEC)
    outputs = _outputs(params, batch)
    rngs = Rngs(jax.random.key(0), deterministic=True)
    sums, carry = jax.jit(lambda p, b: OBJECTIVE.sums(model, p, b, rngs))(params, batch)
    found = means(jax.device_get(sums))
    for name in ("forward_loss", "backward_loss"):
        assert found[name] == pytest.approx(float(outputs[name].mean()), rel=rounding(1))
    perplexity = OBJECTIVE.derived(found)
    assert perplexity["backward_perplexity"] == pytest.approx(np.exp(found["backward_loss"]))
    assert OBJECTIVE.loss_weights == {"forward_loss": 0.5, "backward_loss": 0.5}
    assert carry.keys() == {"states"}


def test_carried_states_make_one_long_reading(params):
    """Forward over two batches, as over one of double length; backward from the other end."""
    whole = _batch(3, 2 * LENGTH)

    def half(begin):
        columns = {name: array[:, begin : begin + LENGTH] for name, array in whole.items()}
        back = slice(LENGTH - begin, 2 * LENGTH - begin)
        columns["backward_characters"] = whole["backward_characters"][:, back]
        columns["backward_ids"] = whole["backward_ids"][:, back]
        return columns

    wanted = _outputs(params, whole | _states())
    one = _outputs(params, half(0) | _states())
    two = _outputs(params, half(LENGTH) | {"states": one["states"]})
    forward = np.concatenate([one["forward_loss"], two["forward_loss"]], 1)
    assert_close(forward, wanted["forward_loss"], _MANY)
    backward = np.concatenate([two["backward_loss"], one["backward_loss"]], 1)
    assert_close(backward, wanted["backward_loss"], _MANY)
    assert_close(two["states"], wanted["states"], _MANY)
    assert np.abs(_outputs(params, half(LENGTH) | _states())["states"] - two["states"]).max() > 1e-3


def test_no_gradient_goes_into_the_batch_before(params):
    def after(params):
        rngs = Rngs(jax.random.key(0), deterministic=True)
        outputs = OBJECTIVE.outputs(OBJECTIVE.model(SPEC), params, _batch(0) | _states(), rngs)
        return outputs["states"].sum()

    assert all(not np.any(leaf) for leaf in jax.tree.leaves(jax.jit(jax.grad(after))(params)))


def test_no_array_of_all_words_in_training(params):
    """The largest array has a number for each drawn word, or is the table."""
    batch, model = _batch(0) | _states(), OBJECTIVE.model(SPEC)

    def loss(params, deterministic):
        rngs = Rngs(jax.random.key(0), deterministic)
        return OBJECTIVE.sums(model, params, batch, rngs)[0]["forward_loss"][0]

    def widths(deterministic):
        program = str(jax.make_jaxpr(jax.grad(loss), static_argnums=1)(params, deterministic))
        return f"{ROWS},{LENGTH},9]" in program, f",{WORDS}]" in program

    assert widths(False) == (True, False)
    assert widths(True) == (False, True)


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "layout, mesh, accumulate, changes",
    [
        ("tensor_fsdp", {"model": 2}, 1, _DIVIDED),
        ("zero1", {}, 1, {}),
        ("data", {}, 1, {"hidden_dropout_prob": 0.1}),
    ],
)
def test_many_devices_train_what_one_trains(layout, mesh, accumulate, changes):
    """The same words are drawn, over three batches with their states."""
    spec = dataclasses.replace(SPEC, hidden_size=16, cell_size=12, **changes)
    train = partial(train_three_batches, OBJECTIVE, spec, make_batch=_batch, accumulate=accumulate)
    one, expected = train(data_parallel(jax.devices()[:1]))
    many, others = train(make_placement(MeshSpec(**mesh), layout))
    for a, b in zip(one, many, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert expected[1]["states"].any()
    assert_close(others[0], expected[0], size=1)
    assert_close(others[1], expected[1], _MANY)


def test_some_rows_begin_with_states_of_zeros(params):
    """In training alone; the others go on with theirs."""
    objective, batch = BothDirections(sampled=9, restart=0.4), _batch(1) | _states(0.3)
    goes_on, anew, mixed = (
        _outputs(params, batch | states, each, deterministic=False)["forward_loss"]
        for each, states in (
            (OBJECTIVE, _states(0.3)),
            (OBJECTIVE, _states()),
            (objective, _states(0.3)),
        )
    )
    begins = np.isclose(mixed, anew, rounding(1, _MANY)).all(1)
    assert_close(mixed[~begins], goes_on[~begins], _MANY)
    assert 0 < begins.sum() < ROWS and not np.isclose(anew, goes_on, atol=1e-3).all(1).any()
    kept = _outputs(params, batch, objective)["forward_loss"]
    np.testing.assert_array_equal(kept, _outputs(params, batch)["forward_loss"])


def test_elements_are_dropped_in_training_alone():
    key, seen = jax.random.key(2), []

    class Given:
        parts = OBJECTIVE.model(SPEC).parts

        def __call__(self, params, inputs, dropout=None, part=""):
            seen.append(dropout)
            return {"states": inputs["states"]}

    batch = _batch(0) | _states()
    for rngs in (Rngs(key), Rngs(key, deterministic=True)):
        jax.eval_shape(lambda rngs=rngs: OBJECTIVE.outputs(Given(), {}, batch, rngs))
    assert len(seen) == 2 and seen[0] is key and seen[1] is None


@pytest.mark.slow
def test_microbatches_have_states_of_their_own(params):
    """With all words drawn, the update of two microbatches is that of the batch."""
    objective = BothDirections(sampled=WORDS)
    optimizer = optax.with_extra_args_support(optax.sgd(1e-1))
    placement, found = data_parallel(jax.devices()[:1]), []
    for accumulate in (1, 2):
        experiment = Experiment(objective.model(SPEC), objective, optimizer, placement, rows=ROWS)
        state, step = experiment.initial_state(0), Trainer(experiment).step(accumulate)
        for number in range(2):
            batch = _batch(number)
            put = partial(lambda batch, held: {n: x[held] for n, x in batch.items()}, batch)
            state, _ = step(state, [placement.put(put, ROWS)], 1.0, 0)
        found.append(jax.device_get((state.params, state.carry)))
    (whole, carry), (in_halves, carried) = found
    assert_close(in_halves, whole, size=1)
    assert_close(carried, carry, _MANY)


def test_what_it_cannot_train():
    with pytest.raises(ValueError, match="objective='both_directions': bert has no head for it"):
        OBJECTIVE.check(BertSpec())
    with pytest.raises(ValueError, match="sampled=0: must be at least 1"):
        BothDirections(sampled=0)
    with pytest.raises(ValueError, match="restart=1.5: must be from 0 to 1"):
        BothDirections(restart=1.5)


def test_operations():
    """By hand: words twice, the layers of both directions, and the drawn words."""
    spec = dataclasses.replace(SPEC, filters=((1, 3), (4, 6)), num_highways=1, hidden_size=10)
    words = 50 * 1 * 5 * 3 + 47 * 4 * 5 * 6 + 2 * 9 * 9 + 9 * 5
    layer = 2 * ((5 + 5) * 4 * 11 + 11 * 5)
    wanted = 2 * words + 2 * layer + 2 * 5 * 9
    assert OBJECTIVE.flops_per_token(spec, 20, 20) == 6 * wanted
    whole = BothDirections(sampled=1000).flops_per_token(spec, 20, 20)
    assert whole == 6 * (wanted + 2 * 5 * (WORDS - 9))
