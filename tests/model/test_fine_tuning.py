"""The heads of fine-tuning."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from bertjax.model.architectures import ARCHITECTURES


@pytest.mark.parametrize(
    ("architecture", "output"),
    [
        ("BertForSequenceClassification", "logits"),
        ("BertForTokenClassification", "logits"),
        ("BertForQuestionAnswering", "start"),
    ],
)
def test_heads_compute_in_float32(spec, make_batch, architecture, output):
    """Where the encoder is in bfloat16: its 8 bits would make ties of close scores."""
    half = dataclasses.replace(spec, compute_dtype="bfloat16")
    model = ARCHITECTURES[architecture].build(half, 5)
    batch = make_batch()
    inputs = [batch[name] for name in ("input_ids", "input_mask", "segment_ids")]
    params = model.init(jax.random.key(0), *inputs, deterministic=True)
    found = model.apply(params, *inputs, deterministic=True)[output]
    assert found.dtype == jnp.float32
    rounded = found.astype(jnp.bfloat16).astype(jnp.float32)
    assert (rounded != found).mean() > 0.9
