"""Dropout by a hash of position: its statistics, its gradient, and its independence of sharding."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from bertjax.base.fields import TEXT
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.layers.dropout import Dropout, dropout, keep_mask, random_bits
from tests.helpers.closeness import assert_close, rounding

SHAPE = (31, 3, 67, 131)  # 816,207 elements, with the axes of attention probabilities


def _dropped(x: np.ndarray, seed: int, rate: float) -> np.ndarray:
    return np.asarray(jax.jit(dropout, static_argnums=2)(x, np.uint32(seed), rate))


def _keep_mask(seed: int, rate: float = 0.1, shape=SHAPE) -> np.ndarray:
    return _dropped(np.ones(shape, np.float32), seed, rate) != 0


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def _five_deviations(count: int) -> float:
    """Five standard deviations of the correlation of `count` independent pairs."""
    return 5 / math.sqrt(count)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_rate_and_scale(rate):
    y = _dropped(np.full(SHAPE, 3, np.float32), 7, rate)
    dropped = y == 0
    deviation = math.sqrt(rate * (1 - rate) / y.size)
    assert abs(dropped.mean() - rate) <= 5 * deviation
    assert_close(y[~dropped], np.full_like(y[~dropped], 3 / (1 - rate)))


def test_bfloat16_stays_bfloat16():
    y = _dropped(np.ones((5, 7), jnp.bfloat16), 1, 0.5)
    assert y.dtype == jnp.bfloat16
    assert set(np.unique(y.astype(np.float32))) == {0.0, 2.0}


def test_the_same_seed_gives_the_same_mask_compiled_or_not():
    x = np.ones((5, 7, 11), np.float32)
    eager = np.asarray(dropout(jnp.asarray(x), jnp.uint32(3), 0.5))
    np.testing.assert_array_equal(eager, _dropped(x, 3, 0.5))


@pytest.mark.parametrize("other", [1, 2, 12345, 2**31, 2**32 - 1])
def test_another_seed_gives_an_independent_mask(other):
    one, two = _keep_mask(0), _keep_mask(other)
    assert abs(_correlation(one, two)) < _five_deviations(one.size)


@pytest.mark.parametrize("lag", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("axis", [0, 2, 3])
def test_no_correlation_along_an_axis(axis, lag):
    kept = _keep_mask(11)
    length = kept.shape[axis]
    one = kept.take(range(length - lag), axis)
    two = kept.take(range(lag, length), axis)
    assert abs(_correlation(one, two)) < _five_deviations(one.size)


@pytest.mark.parametrize("axis", range(4))
def test_no_axis_has_lines_that_are_dropped_more(axis):
    """The counts over all slices along an axis have the variance of a binomial distribution."""
    kept, rate = _keep_mask(5), 0.1
    counts = (~np.moveaxis(kept, axis, 0)).reshape(kept.shape[axis], -1).sum(1)
    each = kept.size // kept.shape[axis]
    z = (counts - each * rate) / math.sqrt(each * rate * (1 - rate))
    assert np.abs(z).max() < 5
    freedom = len(z)
    assert abs((z**2).sum() - freedom) < 5 * math.sqrt(2 * freedom)  # chi-squared


def test_runs_in_a_matrix_are_those_of_chance():
    """In both directions of [B, D], rate**2 of all pairs of neighbours are dropped together."""
    dropped = ~_keep_mask(9, 0.1, (701, 997))
    for both in (dropped[1:] & dropped[:-1], dropped[:, 1:] & dropped[:, :-1]):
        assert abs(both.mean() - 0.01) < 5 * math.sqrt(0.01 * 0.99 / both.size)


def test_rows_share_stretches_as_rarely_as_stated():
    """B rows of n elements have B**2 n / 2**32 pairs that share some of their bits, shifted."""
    rows, width, seeds = 4096, 256, 8
    pairs, drawn = 0, jax.jit(random_bits, static_argnums=1)
    for seed in range(seeds):
        bits = np.asarray(drawn(np.uint32(seed), (rows, width)))
        # If two rows share bits, one of them begins inside the other.
        found = np.flatnonzero(np.isin(bits, bits[:, 0]) & (np.arange(width) > 0))
        for row, column in zip(*np.divmod(found, width), strict=True):
            (other,) = np.flatnonzero(bits[:, 0] == bits[row, column])
            np.testing.assert_array_equal(bits[row, column:], bits[other, : width - column])
        pairs += len(found)
    expected = seeds * rows**2 * width / 2**32
    assert expected == 8 and abs(pairs - expected) < 5 * math.sqrt(expected)
    assert pairs > 0


def test_the_expectation_is_keep_mask():
    x = np.linspace(-2, 2, 55, dtype=np.float32).reshape(5, 11)
    seeds = np.random.default_rng(0).integers(0, 2**32, 4000, np.uint32)
    mean = jax.jit(lambda s: jax.vmap(lambda seed: dropout(x, seed, 0.1))(s).mean(0))(seeds)
    deviation = np.abs(x) * math.sqrt(0.1 / 0.9 / 4000)
    assert (np.abs(mean - x) <= 5 * deviation + rounding(2)).all()


def test_the_gradient_passes_through_the_same_mask():
    x, weight = np.random.default_rng(0).normal(size=(2, 6, 13, 5)).astype(np.float32)
    seed = np.uint32(42)
    mask = _dropped(np.ones_like(x), seed, 0.3)  # 0 or 1 / 0.7
    gradient = jax.jit(jax.grad(lambda x: (dropout(x, seed, 0.3) * weight).sum()))(x)
    assert_close(gradient, mask * weight)
    np.testing.assert_array_equal(gradient != 0, mask != 0)


@pytest.mark.parametrize(
    "shape, split",
    [
        ((16, 13, 20), P("data")),
        ((16, 13, 20), P("data", None, "model")),
        ((8, 4, 13, 13), P("data", "model")),
        ((2, 8, 20), P(None, "data", "model")),
    ],
)
@pytest.mark.parametrize("grid", [(8, 1), (2, 4), (4, 2)])
def test_a_shard_has_its_slice_of_the_whole_mask(shape, split, grid):
    mesh = jax.make_mesh(grid, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    sharding = NamedSharding(mesh, split)
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)

    def value_and_gradient(x):
        return jax.value_and_grad(lambda x: (dropout(x, jnp.uint32(8), 0.4) ** 2).sum())(x)[1]

    whole = np.asarray(jax.jit(value_and_gradient)(x))
    sharded = jax.jit(value_and_gradient, in_shardings=sharding, out_shardings=sharding)(
        jax.device_put(x, sharding)
    )
    assert len(sharded.addressable_shards) == 8
    for shard in sharded.addressable_shards:
        assert shard.data.size < x.size
        np.testing.assert_array_equal(shard.data, whole[shard.index])


class TestInTheModel:
    """The places in the model that have dropout."""

    @pytest.fixture
    def dropout_spec(self, spec):
        return dataclasses.replace(spec, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)

    @staticmethod
    def _applier(spec, batch, **options):
        """A function from the seed of dropout, or None, to the model's outputs."""
        model = PreTrainingModel(spec)
        inputs = {name: batch[name] for name in TEXT}
        params = jax.jit(lambda: model.init(jax.random.key(0), inputs, deterministic=True))()

        @jax.jit
        def apply(key):
            rngs = None if key is None else {"dropout": jax.random.key(key)}
            return model.apply(params, inputs, deterministic=key is None, rngs=rngs, **options)

        return lambda key: jax.device_get(apply(key))

    def test_deterministic_is_without_dropout(self, spec, dropout_spec, make_batch):
        batch = make_batch()
        expected = self._applier(spec, batch)(None)
        for name, logits in self._applier(dropout_spec, batch)(None).items():
            np.testing.assert_array_equal(logits, expected[name])

    def test_the_key_decides(self, dropout_spec, make_batch):
        apply = self._applier(dropout_spec, make_batch())
        one, same, other = (apply(key)["masked_lm"] for key in (1, 1, 2))
        np.testing.assert_array_equal(one, same)
        assert np.abs(one - other).max() > 0.1

    def test_every_place_has_its_own_mask(self, dropout_spec, make_batch):
        """Hidden dropout is used once after the embeddings, and twice in each layer."""
        apply = self._applier(
            dropout_spec,
            make_batch(rows=16),
            capture_intermediates=lambda module, _: isinstance(module, Dropout),
            mutable=["intermediates"],
        )
        _, state = apply(1)
        found = flatten_dict(state["intermediates"])
        masks = [np.asarray(one) == 0 for path, (one,) in found.items() if path[-1] == "__call__"]
        assert len(masks) == 1 + 2 * dropout_spec.num_hidden_layers
        for mask in masks:
            assert abs(mask.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / mask.size)
        for one, two in itertools.combinations(masks, 2):
            assert abs(_correlation(one, two)) < _five_deviations(one.size)


def test_two_heads_share_a_number():
    """With 16 bits: its lower half decides for the even head, its upper half for the odd one."""
    seed, shape, rate = np.uint32(3), (2, 5, 7, 11), 0.1
    kept = np.asarray(jax.jit(lambda seed: keep_mask(seed, shape, rate, bits=16))(seed))
    numbers = np.asarray(jax.jit(lambda seed: random_bits(seed, (2, 3, 7, 11)))(seed))
    for head in range(5):
        half = numbers[:, head // 2] >> (16 * (head % 2)) & 0xFFFF
        np.testing.assert_array_equal(kept[:, head], half >= round(rate * 2**16))


def test_halves_of_a_number_decide_independently():
    """Rate, and rate**2 for both heads of a pair, within five standard deviations."""
    drawn = jax.jit(lambda seed: keep_mask(seed, (3, 4, 251, 257), 0.1, bits=16))
    dropped = ~np.asarray(drawn(np.uint32(8)))
    for found, rate in ((dropped, 0.1), (dropped[:, 0::2] & dropped[:, 1::2], 0.01)):
        assert abs(found.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / found.size)
