"""The objective left_to_right with the memory of Transformer-XL."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.data.examples.corruption import NextTokens
from bertjax.data.examples.layout import LaidOut
from bertjax.models.encoders.presets import Gpt2Spec
from bertjax.models.encoders.xlnet.spec import TransformerXlSpec, XlnetSpec
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.training.objective import Rngs
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import data_parallel, make_placement
from tests.helpers.carried import train_three_batches
from tests.helpers.closeness import assert_close

SPEC = TransformerXlSpec(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    initializer_range=0.3,
    hidden_dropout_prob=0.0,
)
ROWS, TOKENS = 3, 25
TEXT = np.random.default_rng(7).integers(0, 40, (ROWS, TOKENS)).astype(np.int32)


def _objective(memory: int) -> LeftToRight:
    return LeftToRight(text="continued", memory=memory)


def _batch(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Full rows, and what is predicted in them."""
    arrays = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    rows = LaidOut(arrays, np.full(len(ids), ids.shape[1]))
    return arrays | NextTokens()._targets(rows, None, np.arange(len(ids)))


@pytest.fixture(scope="module")
def params():
    return nn.unbox(jax.jit(_objective(1).model(SPEC).init)(jax.random.key(1)))


@partial(jax.jit, static_argnames="objective")
def _read(params, batch, objective):
    rngs, model = Rngs(jax.random.key(0), deterministic=True), objective.model(SPEC)
    sums, carry = objective.sums(model, params, batch, rngs)
    values = objective.values(objective.outputs(model, params, batch, rngs), batch)
    return sums, carry, values["mlm_loss"]["mlm_loss"][:, :-1]


def _losses(params, length: int, memory: int) -> tuple[np.ndarray, float]:
    """The loss of each token of the text in rows of `length`, [ROWS, TOKENS - 1]; their mean."""
    objective, losses, total = _objective(memory), [], np.zeros(2)
    carry = {
        name: np.zeros((ROWS, *each.shape), each.dtype)
        for name, each in objective.carried(objective.model(SPEC)).items()
    }
    for begin in range(0, TOKENS - 1, length - 1):
        batch = _batch(TEXT[:, begin : begin + length])
        sums, carry, each = jax.device_get(_read(params, batch | carry, objective))
        losses.append(each)
        total += sums["mlm_loss"]
    return np.concatenate(losses, axis=1), float(total[0] / total[1])


def test_the_perplexity_of_a_text_does_not_depend_on_the_length_of_its_rows(params):
    """With a memory of the whole text; a shorter one gives later tokens less to read."""
    whole, mean = _losses(params, TOKENS, 24)
    assert whole.shape == (ROWS, 24) and mean == pytest.approx(whole.mean(), rel=1e-6)
    for length in (9, 4):
        found, mean_of_rows = _losses(params, length, 24)
        assert_close(found, whole, terms=2048)
        assert np.exp(mean_of_rows) == pytest.approx(np.exp(mean), rel=1e-5)
    short, _ = _losses(params, 9, 8)
    assert_close(short[:, :16], whole[:, :16], terms=2048)  # the first two rows read all before
    assert (np.abs(short - whole)[:, 16:] > 1e-4).all()
    alone, _ = _losses(params, 9, 0)
    assert_close(alone[:, :8], whole[:, :8], terms=2048)
    assert (np.abs(alone - whole)[:, 8:] > 1e-4).all()


@pytest.mark.devices(8)
@pytest.mark.slow
@pytest.mark.parametrize(
    "spec, layout, mesh, accumulate",
    [
        (dataclasses.replace(SPEC, vocab_multiple=8), "tensor_fsdp", {"model": 2}, 2),
        (dataclasses.replace(SPEC, scan_layers=True), "zero1", {}, 1),
        (
            XlnetSpec(vocab_size=40, causal=True, hidden_size=16, num_hidden_layers=2,
                      num_attention_heads=4, intermediate_size=24, hidden_dropout_prob=0.0),
            "sequence",
            {"model": 2},
            1,
        ),
    ],
)  # fmt: skip
def test_many_devices_train_what_one_trains(spec, layout, mesh, accumulate):
    """In microbatches of rows of their own memory; XLNet's body remembers, too."""
    dropped = {"attention_probs_dropout_prob": 0.1 * (accumulate == 1)}
    spec, rng = dataclasses.replace(spec, **dropped), np.random.default_rng(2)
    text = rng.integers(0, 40, (8, 3, 9)).astype(np.int32)

    def make_batch(number):
        batch = _batch(text[:, number])
        types = np.zeros_like(batch["input_ids"])
        return batch | {"token_type_ids": types}

    train = partial(train_three_batches, _objective(7), spec, make_batch=make_batch)
    one, expected = train(data_parallel(jax.devices()[:1]), accumulate=1)
    many, others = train(make_placement(MeshSpec(**mesh), layout), accumulate=accumulate)
    for a, b in zip(one, many, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert expected[1]["memory"].any() and expected[1]["memory_mask"].all()
    assert_close(others, expected, 1000, size=1)


def test_a_memory_that_cannot_be():
    with pytest.raises(ValueError, match="memory=8: needs text='continued', whose rows go on"):
        LeftToRight(memory=8)
    with pytest.raises(ValueError, match="objective.memory=8: gpt2 has no memory: set it to 0"):
        _objective(8).check(Gpt2Spec())
    _objective(8).check(SPEC)
    _objective(0).check(Gpt2Spec())


def test_operations():
    """By hand, for rows of 12 that remember 7 tokens: each product counts 6 for each weight."""
    layer = 4 * 16**2 + 2 * 16 * 24 + 3 * 16 * (12 + 7)
    wanted = 6 * (2 * layer + 16 * 40)
    assert _objective(7).flops_per_token(SPEC, 12, 12) == pytest.approx(wanted)
