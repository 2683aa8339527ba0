"""A model's outputs for examples of any length are those of each sequence alone."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.model import Predictor, encoder_with_head
from bertjax.training.sharding.placement import data_parallel
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.runs.fine_tuning.random_tasks import FAMILIES, LONGEST, SPEC, random_sequences

pytestmark = pytest.mark.devices(8)

PAD = 7  # must not matter


def _predictor(family, devices: int, batch_tokens: int):
    placement = data_parallel(jax.devices()[:devices])
    model = encoder_with_head(family, SPEC)
    predictor = Predictor(
        model, TASK_LOSSES[family.objective], placement, pad_id=PAD, batch_tokens=batch_tokens
    )
    params = nn.unbox(jax.jit(model.init)(jax.random.key(3)))
    return model, params, predictor, jax.device_put(params, placement.replicated)


def _plainly(model, params, family, encoded) -> dict[str, list[np.ndarray]]:
    """Computes all examples as one batch, each padded to the maximum."""
    numbers = np.arange(len(encoded))
    loss = TASK_LOSSES[family.objective]
    batch = encoded.batch(loss.fields, numbers, len(encoded), LONGEST, pad_id=0)
    outputs = jax.jit(lambda p: model(p, batch))(params)
    sizes = np.diff(encoded.starts)
    result = {}
    for name, array in jax.device_get(outputs).items():
        rows = array.reshape(-1) if encoded.choices > 1 else array
        if loss.of_tokens:
            rows = [row[:size] for row, size in zip(rows, sizes, strict=True)]
        result[name] = list(rows)
    return result


@pytest.mark.parametrize(
    "name, devices", others_slow(itertools.product(FAMILIES, (1, 8)), ("choice", 1))
)
def test_buckets_and_batches_change_nothing(name, devices):
    """Compares batches of odd sizes, the last of each bucket partial, with a single batch."""
    family = FAMILIES[name]
    encoded = random_sequences(family, examples=29)
    # Sequences of 16, 24 and 40 tokens make batches of 6, 4 and 2 on each device (a third of that
    # with 3 choices).
    model, params, predictor, on_devices = _predictor(family, devices, batch_tokens=100)
    wanted = _plainly(model, params, family, encoded)
    unlabelled = dataclasses.replace(encoded, labels={})
    found = predictor.outputs(on_devices, unlabelled, (16, 24, LONGEST), "predicting")
    assert found.keys() == wanted.keys()
    for output, rows in wanted.items():
        size = max(np.abs(row).max() for row in rows)
        assert len(found[output]) == len(rows) == len(encoded.starts) - 1
        for result, reference in zip(found[output], rows, strict=True):
            assert result.shape == reference.shape and result.dtype == np.float32
            assert_close(result, reference, size=size)


@pytest.mark.parametrize("buckets", [(LONGEST,), (8, 16, 24, 32, LONGEST)])
def test_each_bucket_is_compiled_once_for_all_parameters(buckets):
    family = FAMILIES["tagging"]
    encoded = random_sequences(family, examples=41)
    model, params, predictor, on_devices = _predictor(family, 1, batch_tokens=100)
    first = predictor.outputs(on_devices, encoded, buckets, "predicting")
    other = jax.tree.map(lambda leaf: leaf * 0.5, on_devices)
    second = predictor.outputs(other, encoded, buckets, "predicting")
    assert predictor._apply._cache_size() == len(buckets)
    assert not np.allclose(first["logits"][0], second["logits"][0])
    wanted = _plainly(model, params, family, encoded)["logits"]
    assert_close(np.concatenate(first["logits"]), np.concatenate(wanted))


def test_fewer_examples_than_devices():
    family = FAMILIES["choice"]
    encoded = random_sequences(family, examples=1)
    model, params, predictor, on_devices = _predictor(family, 8, batch_tokens=0)
    found = predictor.outputs(on_devices, encoded, (LONGEST,), "predicting")
    wanted = _plainly(model, params, family, encoded)
    assert [row.shape for row in found["logits"]] == [()] * 3
    assert_close(found["logits"], wanted["logits"])
