"""Schedule, decay and updates, compared with the papers' formulas in numpy and with PyTorch."""

import dataclasses
from functools import partial

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base import axes
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.xlnet.spec import XlnetSpec
from bertjax.objectives.both_directions import BothDirections
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.objectives.permutation import PermutationLM
from bertjax.runs.recipe import Recipe
from bertjax.training.optimizers.muon import of_matrices
from bertjax.training.optimizers.optimizer import decays, make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.state import logical_axes
from configs import pretrain_modern_base_16, pretrain_modern_large_64, pretrain_modern_small
from tests.helpers.closeness import assert_close, rounding

TINY = MaskedLMNextSentence().model(BertSpec.named("tiny"))
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
    optimizer, rate = make_optimizer(spec), make_schedule(spec, STEPS)
    state = jax.jit(optimizer.init)(params)

    @jax.jit
    def update(params, state, gradient, learning_rate):
        updates, state = optimizer.update(gradient, state, params, learning_rate=learning_rate)
        return optax.apply_updates(params, updates), state

    for count, gradient in enumerate(grads):
        params, state = update(params, state, gradient, rate(count))
    return jax.device_get(params)


def _update(optimizer, gradient, params, rate):
    """The first update, and the state after it."""
    state = jax.jit(optimizer.init)(params)
    return jax.device_get(jax.jit(optimizer.update)(gradient, state, params, learning_rate=rate))


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
        assert rate(step) == pytest.approx(expected, rel=rounding(1), abs=0), step


def test_every_rate_of_a_short_run():
    rate = make_schedule(SPEC, STEPS)
    np.testing.assert_allclose([rate(t) for t in range(STEPS)], RATES, rounding(1))
    assert max(RATES) == 0.01
    assert min(RATES) > 0


def test_no_warm_up():
    rate = make_schedule(dataclasses.replace(SPEC, warmup_steps=0), STEPS)
    np.testing.assert_allclose(
        [rate(t) for t in range(STEPS)],
        [0.01 * (STEPS - t) / STEPS for t in range(STEPS)],
        rounding(1),
    )


def test_warm_up_stable_and_decay():
    """After the warm-up the rate is the peak, bit for bit; then it falls by 1 - sqrt."""
    spec = dataclasses.replace(SPEC, schedule="wsd", decay_steps=7)
    rate = make_schedule(spec, STEPS)
    rates = np.array([rate(t) for t in range(STEPS + 1)])
    np.testing.assert_allclose(rates[:3], [0.01 / 3, 0.02 / 3, 0.01], rounding(1))
    assert (rates[2:14] == np.float32(0.01)).all()
    falling = [0.01 * (1 - np.sqrt(done / 7)) for done in range(8)]
    assert_close(rates[13:], np.array(falling))
    assert rates[-1] == 0


def test_a_rate_that_never_falls():
    rate = make_schedule(dataclasses.replace(SPEC, schedule="wsd", warmup_steps=0), STEPS)
    assert {rate(t) for t in range(STEPS)} == {float(np.float32(0.01))}


def test_a_warm_up_that_is_a_share_of_the_run():
    """Of 20 steps 0.15 are 3, and of 19 are 2."""
    spec = dataclasses.replace(SPEC, warmup_steps=0, warmup_proportion=0.15)
    rate = make_schedule(spec, STEPS)
    np.testing.assert_allclose([rate(t) for t in range(STEPS)], RATES, rounding(1))
    assert spec.warmup_of(19) == 2


def test_a_decay_that_would_begin_in_the_warm_up_is_refused():
    spec = dataclasses.replace(SPEC, schedule="wsd", decay_steps=18)
    with pytest.raises(ValueError, match="decay_steps=18: must be at most 17, .*warmup_steps=3"):
        make_schedule(spec, STEPS)


@pytest.mark.parametrize("warmup_steps", [20, 21])
def test_a_warm_up_as_long_as_the_run_is_refused(warmup_steps):
    spec = dataclasses.replace(SPEC, warmup_steps=warmup_steps)
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}: must be less than the 20"):
        make_schedule(spec, STEPS)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(name="sgd"), "name='sgd': must be one of adamw, lamb, stable_adamw, muon"),
        (dict(learning_rate=0.0), "learning_rate=0.0: must be above 0"),
        (dict(learning_rate=float("nan")), "learning_rate=nan: must be above 0"),
        (dict(epsilon=-1.0), "epsilon=-1.0: must be above 0"),
        (dict(clip_norm=0.0), "clip_norm=0.0: must be above 0"),
        (dict(beta1=1.0), r"beta1=1.0: must be in \[0, 1\)"),
        (dict(beta2=-0.1), r"beta2=-0.1: must be in \[0, 1\)"),
        (dict(weight_decay=-0.01), r"weight_decay=-0.01: must be in \[0, 1\)"),
        (dict(warmup_steps=-1), "warmup_steps=-1: must be at least 0"),
        (
            dict(warmup_steps=0, warmup_proportion=1.0),
            r"warmup_proportion=1.0: must be in \[0, 1\)",
        ),
        (dict(warmup_proportion=0.1), "warmup_proportion=0.1: set it to 0, or warmup_steps=10000"),
        (dict(schedule="cosine"), "schedule='cosine': must be one of linear, wsd"),
        (dict(schedule="wsd", decay_steps=-1), "decay_steps=-1: must be at least 0"),
        (dict(decay_steps=5), "decay_steps=5: needs schedule='wsd', but the schedule is 'linear'"),
        (dict(name="stable_adamw", bias_correction=False), "bias_correction=False: stable_adamw"),
    ],
)
def test_a_value_that_does_not_fit_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
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
    params = jax.eval_shape(TINY.init, jax.random.key(0))
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


def test_what_decays_in_the_other_families():
    """XLNet's biases of queries decay, as in zihangdai/xlnet (`include_in_weight_decay`)."""
    sizes = dict(hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=56)
    elmo = dict(vocab_size=19, hidden_size=14, cell_size=11, filters=((1, 3), (4, 6)))
    xlnet = PermutationLM().model(XlnetSpec(vocab_size=97, **sizes))
    models = (xlnet, BothDirections().model(ElmoSpec(num_hidden_layers=1, **elmo)))
    trees = [nn.unbox(jax.eval_shape(each.init, jax.random.key(0))) for each in models]
    small = {
        name
        for tree in trees
        for name, yes in flatten_dict(decays(tree), sep="/").items()
        if yes and not any(of_weights in name for of_weights in ("kernel", "token", "characters"))
    }
    layer = "xlnet/encoder/layer_0/attention"
    assert small == {
        *(f"{layer}/{name}" for name in ("content_bias", "distance_bias", "text_bias", "text")),
        "xlnet/embeddings/unknown",
        *(f"elmo/encoder/layer_0/{way}/projection" for way in ("forward", "backward")),
    }


def test_adamw():
    assert_close(_run(SPEC), _reference(_corrected))


def test_without_bias_correction_it_is_the_references():
    """The update of google-research/bert optimization.py is next_m / (sqrt(next_v) + epsilon)."""
    spec = dataclasses.replace(SPEC, bias_correction=False)
    assert_close(_run(spec), _reference(lambda m, v, t: m / (np.sqrt(v) + 1e-6)))


def test_lamb():
    """Matrices follow algorithm 2 of arXiv 1904.00962; the rest uses Adam, as in Google's code."""
    spec = dataclasses.replace(SPEC, name="lamb")
    assert_close(_run(spec), _reference(_corrected, lambda p, update: p / update))


def test_lamb_moves_a_matrix_that_is_zero():
    """A norm of zero counts as a ratio of 1."""
    params = {"dense": {"kernel": np.zeros((1, 3), np.float32)}}
    gradient = {"dense": {"kernel": np.array([[1.0, -2.0, 3.0]], np.float32)}}
    after = _run(dataclasses.replace(SPEC, name="lamb"), params, [gradient])
    assert_close(after["dense"]["kernel"], np.array([[-RATES[0], RATES[0], -RATES[0]]]))


@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_stable_adamw(size):
    """Algorithm 2 of arXiv 2304.13013 in float64, with its form of the correction for bias.

    The gradients of `GRADS` grow a hundredfold, so the cut is at work, also where they are small:
    their squares, of 1e-12 and more, are compared with epsilon's, 1e-12.
    """
    grads = [jax.tree.map(lambda g: (size * g).astype(np.float32), each) for each in GRADS]
    flat = {
        (outer, name): PARAMS[outer][name].astype(np.float64)
        for outer in PARAMS
        for name in PARAMS[outer]
    }
    moments = {path: (0.0, 0.0) for path in flat}
    cuts = []
    for t, gradient in enumerate(grads, 1):
        b1, b2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (0.9, 0.999))
        for (outer, name), p in flat.items():
            g = gradient[outer][name].astype(np.float64)
            v, u = moments[outer, name]
            v, u = b1 * v + (1 - b1) * g, b2 * u + (1 - b2) * g * g
            moments[outer, name] = v, u
            cuts.append(max(1.0, np.sqrt(np.mean(g * g / np.maximum(u, 1e-12)))))
            rate = RATES[t - 1] / cuts[-1]
            decay = 0.01 * p if name == "kernel" else 0.0
            flat[outer, name] = p - rate * decay - rate * v / (np.sqrt(u) + 1e-6)
    assert min(cuts) == 1 and max(cuts) > 1.5
    expected = {outer: {name: flat[outer, name] for name in PARAMS[outer]} for outer in PARAMS}
    # The gradient's global norm is not cut.
    spec = dataclasses.replace(SPEC, name="stable_adamw", clip_norm=1e-3)
    assert_close(_run(spec, grads=grads), expected)


@pytest.mark.parametrize(
    "config", [pretrain_modern_small, pretrain_modern_base_16, pretrain_modern_large_64]
)
def test_the_modern_recipes_decay_is_modernberts(config):
    """An update at the peak takes 1e-5 of a weight: 0.41 of it is left after 90,000."""
    spec = Recipe.from_config(config.get_config()).optimizer
    assert (spec.name, spec.schedule) == ("stable_adamw", "wsd")
    left = 1 - spec.learning_rate * spec.weight_decay
    assert left == pytest.approx(1 - 1e-5, abs=1e-12)
    assert left**90_000 == pytest.approx(0.4066, abs=1e-4)
    still = [jax.tree.map(np.zeros_like, PARAMS)] * STEPS
    after = _run(dataclasses.replace(spec, warmup_steps=0, decay_steps=0), grads=still)
    kept = after["dense"]["kernel"] / PARAMS["dense"]["kernel"]  # what is gone is 2e-4
    assert_close(kept, np.full_like(kept, left**STEPS), terms=2 * STEPS)
    np.testing.assert_array_equal(after["norm"]["scale"], PARAMS["norm"]["scale"])


AXES = {
    "key_value": {
        "kernel": (axes.EMBED, axes.QKV, axes.KV_HEADS, axes.HEAD_WIDTH),
        "bias": (axes.QKV, axes.KV_HEADS, axes.HEAD_WIDTH),
    },
    "out": {"kernel": (axes.HEADS, axes.HEAD_WIDTH, axes.EMBED), "bias": (axes.EMBED,)},
    "up": {"kernel": (axes.LAYERS, axes.EMBED, axes.MLP), "bias": (axes.LAYERS, axes.MLP)},
    "token": {"table": (axes.VOCAB, axes.EMBED)},
    "pooler": {"kernel": (axes.EMBED, axes.EMBED_OUT)},
    "classifier": {"kernel": (axes.EMBED_OUT, axes.CLASSES)},
}
SIZES = {
    **{axes.EMBED: 6, axes.QKV: 2, axes.HEADS: 4, axes.KV_HEADS: 2, axes.HEAD_WIDTH: 5},
    **{axes.LAYERS: 4, axes.MLP: 7, axes.VOCAB: 9, axes.EMBED_OUT: 8, axes.CLASSES: 3},
}


def _arrays(seed):
    """Random arrays in the shapes of `AXES`."""
    rng = np.random.default_rng(seed)
    return {
        name: {
            name: rng.normal(size=[SIZES[axis] for axis in named]).astype(np.float32)
            for name, named in leaves.items()
        }
        for name, leaves in AXES.items()
    }


def _as_matrices(tree):
    """The matrices of key and value, and of each layer, as arrays of their own."""
    found = {f"{p} {n}": leaf for p, leaves in tree.items() for n, leaf in leaves.items()}
    names = ("key_value", "out", "up", "pooler")
    key_value, out, up, pooler = (found.pop(f"{name} kernel") for name in names)
    found |= {f"matrix {i}": key_value[:, i].reshape(6, 10) for i in range(2)}
    found |= {"matrix out": out.reshape(20, 6), "matrix pooler": pooler}
    return found | {f"matrix up {i}": up[i] for i in range(4)}


def _orthogonal(x):
    """Five steps of the Newton-Schulz iteration, with the coefficients of Jordan (2024)."""
    x = x / np.linalg.norm(x)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def _muon(matrix, gradients, decay):
    """A matrix after updates by Muon (arXiv 2502.16982, section 2.2), in float64.

    The momentum, Nesterov's, is corrected for bias; Jordan's is not.
    """
    matrix, momentum = matrix.astype(np.float64), 0.0
    for t, g in enumerate(gradients, 1):
        momentum = 0.95 * momentum + 0.05 * g
        mixed = 0.95 * momentum / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t)
        update = 0.2 * max(g.shape) ** 0.5 * _orthogonal(mixed)
        matrix = matrix - RATES[t - 1] * (update + decay * matrix)
    return matrix


def test_muon_is_the_papers_on_every_matrix():
    """What is stacked in one array is as if each was alone; all else, classifiers too, is AdamW's.

    The global norm is cut: of the first and the third gradient to a fifth, of the others not.
    """
    spec = dataclasses.replace(SPEC, name="muon", weight_decay=0.1, clip_norm=5.0)
    optimizer = make_optimizer(spec, axes=lambda: AXES)
    adamw = make_optimizer(dataclasses.replace(spec, name="adamw"))
    result = others = _arrays(0)
    state, adamw_state = jax.jit(lambda p: (optimizer.init(p), adamw.init(p)))(result)

    def updated(optimizer, gradient, state, params, rate):
        updates, state = optimizer.update(gradient, state, params, learning_rate=rate)
        return optax.apply_updates(params, updates), state

    result_update, adamw_update = (jax.jit(partial(updated, each)) for each in (optimizer, adamw))
    cut = []
    for seed, size in enumerate((1.0, 0.1, 1.0, 0.01), 1):
        gradient = jax.tree.map(lambda g, size=size: size * g, _arrays(seed))
        share = min(1.0, 5.0 / _norm(gradient))
        cut.append({k: share * g.astype(float) for k, g in _as_matrices(gradient).items()})
        rate = RATES[seed - 1]
        result, state = result_update(gradient, state, result, rate)
        others, adamw_state = adamw_update(gradient, adamw_state, others, rate)
    first, expected = _as_matrices(_arrays(0)), _as_matrices(jax.device_get(others))
    found = _as_matrices(jax.device_get(result))
    for name in found:
        if name.startswith("matrix"):
            expected[name] = _muon(first[name], [each[name] for each in cut], decay=0.1)
    assert_close(found, expected)


def test_muons_updates_have_the_size_of_adamws():
    """The RMS of a matrix's update is about 0.2 of the rate (arXiv 2502.16982, section 2.2)."""
    spec = dataclasses.replace(SPEC, name="muon", weight_decay=0.0, warmup_steps=0)
    optimizer, params = make_optimizer(spec, axes=lambda: AXES), _arrays(0)
    updates, _ = _update(optimizer, _arrays(1), params, 0.01)
    for name, leaf in _as_matrices(updates).items():
        if name.startswith("matrix"):
            assert 0.13 < np.sqrt(np.mean(np.square(leaf))) / 0.01 < 0.25, name


def test_muon_multiplies_in_the_dtype_of_the_model():
    """In bfloat16, whose step is 1/128, matrices are as orthogonal; all else is as in float32."""
    spec = dataclasses.replace(SPEC, name="muon", weight_decay=0.0, warmup_steps=0)
    found = {}
    for dtype in ("float32", "bfloat16"):
        optimizer, params = make_optimizer(spec, lambda: AXES, dtype), _arrays(0)
        updates, _ = _update(optimizer, _arrays(1), params, 1.0)
        found[dtype] = _as_matrices(updates)
    for name, exact in found["float32"].items():
        rounded = found["bfloat16"][name]
        assert rounded.dtype == np.float32
        if not name.startswith("matrix"):
            np.testing.assert_array_equal(rounded, exact, err_msg=name)
            continue
        sizes = np.linalg.norm(rounded) * np.linalg.norm(exact)
        assert 0.99 < np.vdot(rounded, exact) / sizes < 1 - 1e-6, name  # the cosine
        values = np.linalg.svd(rounded, compute_uv=False) / (0.2 * max(exact.shape) ** 0.5)
        assert 0.6 < values.min() and values.max() < 1.3, name


def test_muon_finds_the_matrices_of_the_model():
    """The four kernels of a layer, and those of heads but classifiers; not the embeddings."""
    found = flatten_dict(of_matrices(logical_axes(TINY.init)), sep="/")
    names = ("attention/qkv", "attention/output", "intermediate", "output")
    assert {name for name, is_matrix in found.items() if is_matrix} == {
        *(f"bert/encoder/layer_{i}/{name}/kernel" for i in (0, 1) for name in names),
        *("pooler/dense/kernel", "masked_lm/transform/kernel"),
    }


def test_an_update_is_the_given_rate_times_a_direction():
    """It is not in the state, so that runs with different rates share what is compiled."""
    optimizer = make_optimizer(SPEC)
    small, large = (_update(optimizer, GRADS[0], PARAMS, rate) for rate in (0.01, 0.02))
    jax.tree.map(np.testing.assert_array_equal, large[0], jax.tree.map(lambda u: 2 * u, small[0]))
    jax.tree.map(np.testing.assert_array_equal, small[1], large[1])
    assert int(jax.jit(optimizer.init)(PARAMS)[-1].count) == 0 and small[1][-1].count == 1


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
    expected = {name: p.detach() for name, p in weights.items()}
    assert_close(flatten_dict(_run(SPEC)), expected)


# -------------------------------------------------------------------------------- clipping


def _norm(tree) -> float:
    return float(np.sqrt(sum(np.square(leaf, dtype=float).sum() for leaf in jax.tree.leaves(tree))))


def _scaled(gradient, norm: float):
    factor = norm / _norm(gradient)
    return jax.tree.map(lambda g: (g * factor).astype(np.float32), gradient)


@pytest.mark.parametrize("norm, cut_to", [(0.5, 0.5), (7.0, 1.0)])
def test_clipping_is_of_the_global_norm(norm, cut_to):
    """After one step, the first moments are 0.1 of the clipped gradient."""
    spec = dataclasses.replace(SPEC, clip_norm=1.0)
    optimizer = make_optimizer(spec)
    gradient = _scaled(GRADS[0], norm)
    _, state = _update(optimizer, gradient, PARAMS, 0.01)
    moments = optax.tree.get(state, "mu")
    expected = jax.tree.map(lambda g: 0.1 * g * cut_to / norm, gradient)
    assert_close(moments, expected)
