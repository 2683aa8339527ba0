"""The heads of fine-tuning."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from small_models import KINDS

from bertjax.heads.architectures import ARCHITECTURES


@pytest.mark.parametrize(
    ("architecture", "output"),
    [
        ("BertForSequenceClassification", "logits"),
        ("BertForTokenClassification", "logits"),
        ("BertForQuestionAnswering", "start"),
        ("BertForPreTraining", "next_sentence"),
    ],
)
def test_heads_compute_in_float32(spec, make_batch, architecture, output):
    """The encoder is in bfloat16, whose 8 bits would make close scores equal."""
    half = dataclasses.replace(spec, compute_dtype="bfloat16")
    model = ARCHITECTURES[KINDS[architecture]].build(half, 5)
    batch = make_batch()
    inputs = [batch[name] for name in ("input_ids", "input_mask", "token_type_ids")]
    params = model.init(jax.random.key(0), *inputs, deterministic=True)
    found = model.apply(params, *inputs, deterministic=True)[output]
    assert found.dtype == jnp.float32
    rounded = found.astype(jnp.bfloat16).astype(jnp.float32)
    assert (rounded != found).mean() > 0.9


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("BertForSequenceClassification", "classifier"),
        ("BertForTokenClassification", "classifier"),
        ("BertForMultipleChoice", "classifier"),
        ("BertForQuestionAnswering", "span"),
    ],
)
def test_a_new_output_layer_begins_as_that_of_transformers(spec, architecture, head):
    """It is normal with the `initializer_range`, but not cut at two deviations like the encoder."""
    model = ARCHITECTURES[KINDS[architecture]].build(
        dataclasses.replace(spec, initializer_range=0.07), 29
    )
    ids = jnp.zeros((1, 3, 7) if architecture == "BertForMultipleChoice" else (3, 7), jnp.int32)
    init = jax.jit(lambda key: model.init(key, ids, ids, ids, deterministic=True)["params"])
    drawn = [nn.unbox(init(jax.random.key(seed))) for seed in range(60)]
    kernels = np.array([params[head]["kernel"] for params in drawn])
    error = kernels.size**-0.5
    assert abs(kernels.mean()) < 4 * 0.07 * error
    assert kernels.std() == pytest.approx(0.07, rel=4 * error)
    beyond = (np.abs(kernels) > 0.14).mean()  # in a normal distribution, 0.0455
    assert beyond == pytest.approx(0.0455, abs=4 * 0.21 * error)
    assert not any(params[head]["bias"].any() for params in drawn)
