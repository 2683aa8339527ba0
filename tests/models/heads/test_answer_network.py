"""The answer network: classes by the papers' formulas, and what is dropped in training."""

import itertools

import jax
import numpy as np
import pytest
from flax import linen as nn
from scipy.special import expit, softmax

from bertjax.models.heads.answer_network import AnswerNetwork, Gru
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.random_params import random_params

CLASSES, WIDTH, STEPS = 3, 5, 4
# The texts' numbers: an odd place for each border, one padding, and none at all.
NUMBERS = np.array(
    [[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 2, 0], [1, 2, 2, 0, 0, 0, 0], [1, 1, 2, 2, 2, 0, 0]],
    np.int32,
)


def _network(steps: int = STEPS, step_dropout: float = 0.0, dropout: float = 0.0):
    init = nn.initializers.normal(0.7)
    return AnswerNetwork(CLASSES, steps, step_dropout, dropout, init)


@pytest.fixture(scope="module")
def case():
    """States at random, and parameters of which none is 0."""
    rng = np.random.default_rng(3)
    states = rng.normal(size=(*NUMBERS.shape, WIDTH)).astype(np.float32)
    return states, random_params(_network(), states, NUMBERS, of=lambda path: (0, 0.7))


def _by_hand(params, states, numbers, steps):
    """The probabilities of each step, [B, K, C]; each row from the tokens of its own texts."""
    p = jax.tree.map(np.asarray, params)
    result = []
    for row, number in zip(states, numbers, strict=True):
        premise, hypothesis = row[number == 1], row[number == 2]
        s = softmax(hypothesis @ p["pooling"]["kernel"][:, 0]) @ hypothesis
        each = []
        for _ in range(steps):
            sought = s @ p["bilinear"]["kernel"] + p["bilinear"]["bias"]
            x = softmax(premise @ sought) @ premise
            features = np.concatenate([x, s, abs(x - s), x * s])
            logits = features @ p["classifier"]["kernel"] + p["classifier"]["bias"]
            each.append(softmax(logits))
            gates = {
                name: np.split(of @ p["gru"][name]["kernel"] + p["gru"][name]["bias"], 3)
                for name, of in (("input", x), ("recurrent", s))
            }
            (r_x, z_x, n_x), (r_h, z_h, n_h) = gates["input"], gates["recurrent"]
            z = expit(z_x + z_h)
            s = (1 - z) * np.tanh(n_x + expit(r_x + r_h) * n_h) + z * s
        result.append(each)
    return np.array(result)


@pytest.mark.parametrize("steps", [1, STEPS])
def test_the_mean_of_the_steps(case, steps):
    states, params = case
    of_steps = _by_hand(params, states, NUMBERS, steps)
    assert np.ptp(of_steps, axis=1).max() > 0.1 or steps == 1
    network = _network(steps)
    apply = jax.jit(lambda p: network.apply({"params": p}, states, NUMBERS, deterministic=True))
    found = apply(params)
    assert_close(np.exp(found), of_steps.mean(1))


def test_padding_does_not_enter(case):
    states, params = case

    @jax.jit
    def outputs(states, numbers):
        return _network().apply({"params": params}, states, numbers, deterministic=True)

    others = np.where(NUMBERS[..., None] == 0, 1e3, states).astype(np.float32)
    np.testing.assert_array_equal(outputs(others, NUMBERS), outputs(states, NUMBERS))
    gradient = jax.jit(jax.grad(lambda states: outputs(states, NUMBERS)[:, 0].sum()))(states)
    assert ((gradient != 0).any(-1) == (NUMBERS > 0)).all()
    # A row that only fills up a batch has no tokens, and gives numbers all the same.
    assert np.isfinite(outputs(states, 0 * NUMBERS)).all()


@pytest.mark.slow
def test_a_dropped_step_does_not_enter_the_mean(case):
    """Each example has the mean of some of its steps, at least one, which chance decides."""
    _, params = case
    rows, rate = 600, 0.7
    states = np.random.default_rng(4).normal(size=(rows, 7, WIDTH)).astype(np.float32)
    numbers = np.tile(NUMBERS, (rows // len(NUMBERS), 1))
    network, key = _network(3, rate), jax.random.key(1)
    apply = jax.jit(
        lambda deterministic: network.apply(
            {"params": params}, states, numbers, deterministic=deterministic, rngs={"dropout": key}
        ),
        static_argnums=0,
    )
    of_steps = _by_hand(params, states, numbers, 3)
    assert_close(np.exp(apply(True)), of_steps.mean(1), terms=1000)  # logits of about 10
    subsets = [list(s) for n in (1, 2, 3) for s in itertools.combinations(range(3), n)]
    means = np.stack([of_steps[:, subset].mean(1) for subset in subsets], 1)  # [B, subsets, C]
    distance = np.abs(np.exp(apply(False))[:, None] - means).max(-1)
    assert (distance.min(1) < rounding(1, 1000)).all()
    chosen = distance.argmin(1)
    there = np.array([[step in subsets[each] for step in range(3)] for each in chosen])
    # One of the steps is certain, another is kept with the probability 1 - rate.
    share = 1 / 3 + 2 / 3 * (1 - rate)
    assert np.abs(there.mean(0) - share).max() < 4 * (share * (1 - share) / rows) ** 0.5
    alone = (there.sum(1) == 1).mean()
    assert abs(alone - rate**2) < 4 * (rate**2 * (1 - rate**2) / rows) ** 0.5


def test_elements_are_dropped_in_all_tokens_alike(case):
    """A text of equal tokens is read as one of them, whatever their weights."""
    _, params = case
    states, numbers = np.ones((90, 7, WIDTH), np.float32), np.full((90, 7), 2, np.int32)

    @jax.jit
    def inputs_of_layers(params, key):
        read, network = {}, _network(1, dropout=0.5)

        def record(call, arguments, keywords, context):
            read.setdefault(context.module.name, arguments[0])
            return call(*arguments, **keywords)

        with nn.intercept_methods(record):
            rngs = {"dropout": key}
            network.apply({"params": params}, states, numbers, deterministic=False, rngs=rngs)
        return {name: read[name] for name in ("pooling", "bilinear")}

    read = jax.device_get(inputs_of_layers(params, jax.random.key(1)))
    np.testing.assert_array_equal(read["pooling"][:, 0], read["pooling"][:, 6])
    # Dropped twice: as an element of the tokens, and as one of the state that they become.
    kept = np.isclose(read["bilinear"], 4, rtol=0, atol=rounding(4))
    assert (kept | (read["bilinear"] == 0)).all()
    assert abs(kept.mean() - 0.25) < 4 * (0.25 * 0.75 / kept.size) ** 0.5


@pytest.mark.peers
def test_the_gru_is_that_of_torch():
    import torch

    rng = np.random.default_rng(5)
    state, x = rng.normal(size=(2, 6, WIDTH)).astype(np.float32)
    params = nn.unbox(jax.jit(Gru().init)(jax.random.key(2), state, x)["params"])
    peer = torch.nn.GRUCell(WIDTH, WIDTH)
    with torch.no_grad():
        for result, reference in (("input", "ih"), ("recurrent", "hh")):
            kernel, bias = (np.asarray(params[result][name]) for name in ("kernel", "bias"))
            assert np.abs(kernel).max() <= WIDTH**-0.5 and np.abs(bias).max() > 0.01
            getattr(peer, f"weight_{reference}").copy_(torch.tensor(kernel.T))
            getattr(peer, f"bias_{reference}").copy_(torch.tensor(bias))
        wanted = peer(torch.tensor(x), torch.tensor(state)).numpy()
    assert_close(jax.jit(Gru().apply)({"params": params}, state, x), wanted)
