"""Schedule, decay and updates, compared with the papers' formulas in numpy and with PyTorch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.encoders.bert.spec import BertSpec
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.optimizer import (
    OptimizerSpec,
    decays,
    make_adjustable_optimizer,
    make_optimizer,
    make_schedule,
    with_schedule,
)

STEPS = 20
SPEC = OptimizerSpec(learning_rate=0.01, warmup_steps=3, clip_norm=1e9)
RATES = [0.01 * min((t + 1) / 3, (STEPS - t) / (STEPS - 3), 1) for t in range(STEPS)]


def _tree(seed: int, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    shapes = {"dense": {"kernel": (5, 3), "bias": (3,)}, "norm": {"scale": (3,), "bias": (3,)}}
    return jax.tree.map(
        lambda shape: rng.normal(0, scale, shape).astype(np.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


PARAMS = _tree(0)
GRADS = [_tree(seed, scale=10.0 ** (seed % 3 - 2)) for seed in range(1, 9)]


def _run(spec, params=PARAMS, grads=GRADS):
    optimizer = make_optimizer(spec, STEPS)
    state = optimizer.init(params)

    @jax.jit
    def update(params, state, gradient):
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for gradient in grads:
        params, state = update(params, state, gradient)
    return params


def _reference(direction, norm_ratio=None):
    """The parameters after `GRADS`, in float64: p -= rate * (ratio *) (direction + 0.01 p)."""
    flat = {
        (outer, name): PARAMS[outer][name].astype(np.float64)
        for outer in PARAMS
        for name in PARAMS[outer]
    }
    moments = {path: (np.zeros_like(p), np.zeros_like(p)) for path, p in flat.items()}
    for t, gradient in enumerate(GRADS):
        for (outer, name), p in flat.items():
            g = gradient[outer][name].astype(np.float64)
            m, v = moments[outer, name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            moments[outer, name] = m, v
            update = direction(m, v, t + 1)
            if name == "kernel":
                update = update + 0.01 * p
                if norm_ratio:
                    update = update * norm_ratio(np.linalg.norm(p), np.linalg.norm(update))
            flat[outer, name] = p - RATES[t] * update
    return {outer: {name: flat[outer, name] for name in PARAMS[outer]} for outer in PARAMS}


def _assert_close(actual, expected, rtol=2e-5):
    for outer in expected:
        for name, leaf in expected[outer].items():
            np.testing.assert_allclose(
                actual[outer][name], leaf, rtol=rtol, atol=1e-6, err_msg=f"{outer}/{name}"
            )


def _corrected(m, v, t):
    return (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)


# -------------------------------------------------------------------------------- schedule


def test_the_papers_schedule():
    """Section A.2: rate 1e-4, 10,000 steps of warm-up, linear decay over 1,000,000 steps."""
    rate = make_schedule(OptimizerSpec(), 1_000_000)
    points = {
        0: 1e-4 / 10_000,
        4_999: 0.5e-4,
        9_999: 1e-4,
        10_000: 1e-4,
        10_001: 1e-4 * 989_999 / 990_000,
        505_000: 0.5e-4,
        999_999: 1e-4 / 990_000,
        1_000_000: 0.0,
    }
    for step, expected in points.items():
        assert float(rate(step)) == pytest.approx(expected, rel=1e-5, abs=1e-15), step
        assert float(jax.jit(rate)(jnp.int32(step))) == pytest.approx(
            expected, rel=1e-5, abs=1e-15
        ), step


def test_every_rate_of_a_short_run():
    rate = make_schedule(SPEC, STEPS)
    np.testing.assert_allclose([rate(t) for t in range(STEPS)], RATES, rtol=1e-6)
    assert max(RATES) == 0.01
    assert min(RATES) > 0


def test_no_warm_up():
    rate = make_schedule(dataclasses.replace(SPEC, warmup_steps=0), STEPS)
    np.testing.assert_allclose(
        [rate(t) for t in range(STEPS)], [0.01 * (STEPS - t) / STEPS for t in range(STEPS)], 1e-6
    )


@pytest.mark.parametrize("warmup_steps", [20, 21])
def test_a_warm_up_as_long_as_the_run_is_refused(warmup_steps):
    spec = dataclasses.replace(SPEC, warmup_steps=warmup_steps)
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}: must be less than the 20"):
        make_schedule(spec, STEPS)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(name="sgd"), "name='sgd': must be 'adamw' or 'lamb'"),
        (dict(learning_rate=0.0), "learning_rate=0.0: must be positive"),
        (dict(learning_rate=float("nan")), "learning_rate=nan: must be positive"),
        (dict(epsilon=-1.0), "epsilon=-1.0: must be positive"),
        (dict(clip_norm=0.0), "clip_norm=0.0: must be positive"),
        (dict(beta1=1.0), r"beta1=1.0: must be in \[0, 1\)"),
        (dict(beta2=-0.1), r"beta2=-0.1: must be in \[0, 1\)"),
        (dict(weight_decay=-0.01), r"weight_decay=-0.01: must be in \[0, 1\)"),
        (dict(warmup_steps=-1), "warmup_steps=-1: must not be negative"),
    ],
)
def test_a_value_that_does_not_fit_is_named(fields, message):
    with pytest.raises(ValueError, match=f"optimizer {message}"):
        OptimizerSpec(**fields)


def test_the_defaults_are_the_papers():
    spec = OptimizerSpec()
    assert (spec.name, spec.learning_rate, spec.warmup_steps) == ("adamw", 1e-4, 10_000)
    assert (spec.beta1, spec.beta2, spec.epsilon) == (0.9, 0.999, 1e-6)
    assert (spec.weight_decay, spec.clip_norm, spec.bias_correction) == (0.01, 1.0, True)


# --------------------------------------------------------------------------------- updates


def test_what_decays():
    assert decays(PARAMS) == {
        "dense": {"kernel": True, "bias": False},
        "norm": {"scale": False, "bias": False},
    }


def test_what_decays_in_the_model():
    """All matrices and embeddings decay, and nothing else."""
    model = PreTrainingModel(BertSpec.named("tiny"))
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    params = jax.eval_shape(
        lambda ids: model.init(jax.random.key(0), ids, ids, ids, deterministic=True)["params"], ids
    )
    decayed = flatten_dict(decays(nn.unbox(params)), sep="/")
    layers = [
        f"bert/encoder/layer_{i}/{name}/kernel"
        for i in (0, 1)
        for name in ("attention/qkv", "attention/output", "intermediate", "output")
    ]
    embeddings = [f"bert/embeddings/{name}" for name in ("token", "position", "segment")]
    heads = [
        f"{name}/kernel" for name in ("pooler/dense", "masked_lm/transform", "next_sentence_head")
    ]
    assert {name for name, yes in decayed.items() if yes} == {*layers, *embeddings, *heads}


def test_adamw():
    _assert_close(_run(SPEC), _reference(_corrected))


def test_without_bias_correction_it_is_the_references():
    """The update of google-research/bert optimization.py is next_m / (sqrt(next_v) + epsilon)."""
    spec = dataclasses.replace(SPEC, bias_correction=False)
    _assert_close(_run(spec), _reference(lambda m, v, t: m / (np.sqrt(v) + 1e-6)))


def test_lamb():
    """Matrices follow algorithm 2 of arXiv 1904.00962; the rest uses Adam, as in Google's code."""
    spec = dataclasses.replace(SPEC, name="lamb")
    _assert_close(_run(spec), _reference(_corrected, lambda p, update: p / update))


def test_lamb_moves_a_matrix_that_is_zero():
    """A norm of zero counts as a ratio of 1."""
    params = {"dense": {"kernel": np.zeros((1, 3), np.float32)}}
    gradient = {"dense": {"kernel": np.array([[1.0, -2.0, 3.0]], np.float32)}}
    after = _run(dataclasses.replace(SPEC, name="lamb"), params, [gradient])
    np.testing.assert_allclose(
        after["dense"]["kernel"], [[-RATES[0], RATES[0], -RATES[0]]], rtol=1e-4
    )


@pytest.mark.peers
def test_adamw_is_pytorchs():
    """Decay is rate * decay * p, moments are corrected, and epsilon is outside the root."""
    import torch

    weights = {
        (outer, name): torch.nn.Parameter(torch.tensor(PARAMS[outer][name]))
        for outer in PARAMS
        for name in PARAMS[outer]
    }
    kernel = [p for (_, name), p in weights.items() if name == "kernel"]
    others = [p for (_, name), p in weights.items() if name != "kernel"]
    groups = [dict(params=kernel, weight_decay=0.01), dict(params=others, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6)
    for rate, gradient in zip(RATES, GRADS, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for (outer, name), p in weights.items():
            p.grad = torch.tensor(gradient[outer][name])
        optimizer.step()
    actual = _run(SPEC)
    for (outer, name), p in weights.items():
        np.testing.assert_allclose(actual[outer][name], p.detach(), rtol=2e-5, atol=1e-6)


# -------------------------------------------------------------------------------- clipping


def _scaled(gradient, norm: float):
    factor = norm / float(optax.tree.norm(gradient))
    return jax.tree.map(lambda g: (g * factor).astype(np.float32), gradient)


@pytest.mark.parametrize("norm, cut_to", [(0.5, 0.5), (7.0, 1.0)])
def test_clipping_is_of_the_global_norm(norm, cut_to):
    """After one step, the first moments are 0.1 of the clipped gradient."""
    spec = dataclasses.replace(SPEC, clip_norm=1.0)
    optimizer = make_optimizer(spec, STEPS)
    gradient = _scaled(GRADS[0], norm)
    _, state = optimizer.update(gradient, optimizer.init(PARAMS), PARAMS)
    moments = optax.tree.get(state, "mu")
    expected = jax.tree.map(lambda g: 0.1 * g * cut_to / norm, gradient)
    _assert_close(moments, expected)


# --------------------------------------------------------------- one optimizer, many schedules


@pytest.mark.parametrize(
    "fields",
    [dict(), dict(bias_correction=False), dict(name="lamb"), dict(weight_decay=0.0)],
    ids=["adamw", "without bias correction", "lamb", "without decay"],
)
def test_an_adjustable_optimizer_is_each_of_the_others_compiled_once(fields):
    """Two trials with different rates, warm-ups and lengths share one compiled update."""
    common = OptimizerSpec(clip_norm=0.7, **fields)
    adjustable = make_adjustable_optimizer(common)
    traces = []

    @jax.jit
    def update(params, state, gradient):
        traces.append(1)
        updates, state = adjustable.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for rate, warmup, steps in ((0.01, 3, 20), (0.3, 0, 8)):
        spec = dataclasses.replace(common, learning_rate=rate, warmup_steps=warmup)
        fixed = make_optimizer(spec, steps)
        ours, wanted = PARAMS, PARAMS
        state = with_schedule(jax.jit(adjustable.init)(PARAMS), spec, steps)
        fixed_state = fixed.init(PARAMS)
        for gradient in GRADS:
            ours, state = update(ours, state, gradient)
            updates, fixed_state = fixed.update(gradient, fixed_state, wanted)
            wanted = optax.apply_updates(wanted, updates)
            _assert_close(ours, wanted, rtol=1e-5)
        assert not np.allclose(ours["dense"]["kernel"], PARAMS["dense"]["kernel"], atol=1e-3)
    assert len(traces) == 1


def test_an_adjustable_optimizer_stands_still_before_it_has_a_schedule():
    adjustable = make_adjustable_optimizer(SPEC)
    updates, _ = adjustable.update(GRADS[0], adjustable.init(PARAMS), PARAMS)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(updates))
