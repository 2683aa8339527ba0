"""The heads of fine-tuning: what they read, left to right and with a BiLSTM too."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.fields import TEXT
from bertjax.models.encoders import head_types
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from bertjax.training.model import zeros
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import KINDS


@pytest.mark.parametrize(
    ("head_spec", "output"),
    others_slow(
        [
            ("BertForSequenceClassification", "logits"),
            ("BertForTokenClassification", "logits"),
            ("BertForQuestionAnswering", "start"),
            ("BertForPreTraining", "next_sentence"),
        ],
        ("BertForSequenceClassification", "logits"),
    ),
)
def test_heads_compute_in_float32(spec, make_batch, head_spec, output):
    """The encoder is in bfloat16, whose 8 bits would make close scores equal."""
    half = dataclasses.replace(spec, compute_dtype="bfloat16")
    model = HEAD_SPECS[KINDS[head_spec]].build(half, 5)
    batch = make_batch()
    params = jax.jit(partial(model.init, deterministic=True))(jax.random.key(0), batch)
    found = np.asarray(jax.jit(partial(model.apply, deterministic=True))(params, batch)[output])
    assert found.dtype == jnp.float32
    rounded = found.astype(jnp.bfloat16).astype(np.float32)
    assert (rounded != found).mean() > 0.9


@pytest.mark.parametrize(
    ("head_spec", "head"),
    [
        ("BertForSequenceClassification", "classifier"),
        ("BertForTokenClassification", "classifier"),
        ("BertForMultipleChoice", "classifier"),
        ("BertForQuestionAnswering", "span"),
    ],
)
def test_a_new_output_layer_begins_as_that_of_transformers(spec, head_spec, head):
    """It is normal with the `initializer_range`, but not cut at two deviations like the encoder."""
    model = HEAD_SPECS[KINDS[head_spec]].build(
        dataclasses.replace(spec, initializer_range=0.07), 29
    )
    sizes = dict(B=1, C=3, S=7) if head_spec == "BertForMultipleChoice" else dict(B=3, S=7)
    inputs = zeros(text_inputs(spec, **sizes))
    init = jax.jit(lambda key: model.init(key, inputs, deterministic=True)["params"])
    drawn = [nn.unbox(jax.device_get(init(jax.random.key(seed)))) for seed in range(60)]
    kernels = np.array([params[head]["kernel"] for params in drawn])
    error = kernels.size**-0.5
    assert abs(kernels.mean()) < 4 * 0.07 * error
    assert kernels.std() == pytest.approx(0.07, rel=4 * error)
    beyond = (np.abs(kernels) > 0.14).mean()  # in a normal distribution, 0.0455
    assert beyond == pytest.approx(0.0455, abs=4 * 0.21 * error)
    assert not any(params[head]["bias"].any() for params in drawn)


# ------------------------------------------------------------- left to right, and a BiLSTM

# Encoder reads left to right; layers of the BiLSTM, 0 for none.
WAYS = {"left to right": (True, 0), "BiLSTM": (False, 1), "left to right, BiLSTM": (True, 2)}


def _built(spec, kind: str, way: str):
    """A model, its parameters, and a function from a batch's arrays to its outputs."""
    causal, depth = WAYS[way]
    model = HEAD_SPECS[kind].build(dataclasses.replace(spec, causal=causal), 3)
    model = model.clone(bilstm=BiLstm(10, depth, 0.0) if depth else None)
    sizes = dict(B=1, C=2, S=5) if kind == head_types.MULTIPLE_CHOICE else dict(B=1, S=5)
    some = zeros(text_inputs(spec, **sizes))
    init = jax.jit(lambda key: model.init(key, some, deterministic=True)["params"])
    params = nn.unbox(init(jax.random.key(0)))
    apply = jax.jit(lambda inputs: model.apply({"params": params}, inputs, deterministic=True))
    return model, params, lambda batch: jax.device_get(apply(batch))


def _with_other_token(batch, place: int):
    """The batch with another token at a place of every row that has it."""
    ids = batch["input_ids"].copy()
    ids[:, place] = np.where(ids[:, place], (ids[:, place] + 31) % 96 + 1, ids[:, place])
    return batch | {"input_ids": ids}


def _of_each_way(kind: str) -> list:
    """The cases of a kind of task; those with the BiLSTM are slow."""
    cases = [(kind, way) for way in WAYS]
    return others_slow(cases, *[case for case in cases if "BiLSTM" not in case[1]])


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *_of_each_way(head_types.SEQUENCE_CLASSIFICATION),
        pytest.param(head_types.MULTIPLE_CHOICE, "left to right", marks=pytest.mark.slow),
    ],
)
def test_a_class_is_read_from_the_whole_text(spec, make_batch, kind, way):
    """Every token matters, and no padding does."""
    _, _, outputs = _built(spec, kind, way)
    batch = make_batch(length=9)
    rows = (6,) if kind == head_types.SEQUENCE_CLASSIFICATION else (2, 3)

    def logits(batch):
        found = outputs({name: batch[name].reshape(*rows, -1) for name in TEXT})
        return found["logits"].reshape(6, -1)

    before = logits(batch)
    lengths = batch["input_mask"].sum(1)
    for place in range(lengths.max()):
        changed = np.abs(logits(_with_other_token(batch, place)) - before).max(1)
        assert (changed[lengths > place] > 1e-4).all()
        assert (changed[lengths <= place] == 0).all()
    longer = {name: np.pad(batch[name], ((0, 0), (0, 4))) for name in TEXT}
    longer["input_ids"] = np.where(longer["input_mask"], longer["input_ids"], 50)
    assert_close(logits(longer), before)


def test_left_to_right_the_last_token_is_pooled(spec, make_batch):
    """By BERT's own pooler, as [CLS] is in the other direction."""
    model, params, outputs = _built(spec, head_types.SEQUENCE_CLASSIFICATION, "left to right")
    batch = make_batch()
    encoder = HEAD_SPECS[head_types.ENCODER].build(model.spec, 0)
    apply = jax.jit(partial(encoder.apply, deterministic=True))
    sequence = np.asarray(apply({"params": params}, batch)["sequence"])
    mask = batch["input_mask"]
    last = np.array([row[here > 0][-1] for row, here in zip(sequence, mask, strict=True)])
    params = jax.device_get(params)
    dense, classifier = params["pooler"]["dense"], params["classifier"]
    pooled = np.tanh(last @ dense["kernel"] + dense["bias"])
    wanted = pooled @ classifier["kernel"] + classifier["bias"]
    assert_close(outputs(batch)["logits"], wanted)


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *_of_each_way(head_types.QUESTION_ANSWERING),
        pytest.param(
            head_types.TOKEN_CLASSIFICATION, "left to right, BiLSTM", marks=pytest.mark.slow
        ),
    ],
)
def test_what_a_token_is_read_from(spec, make_batch, kind, way):
    """With a BiLSTM from all tokens, also left to right; without one from those before it."""
    _, _, outputs = _built(spec, kind, way)
    batch = make_batch(rows=3)
    row, length = 1, 7
    assert batch["input_mask"][row].sum() == length

    def of_tokens(batch):
        found = outputs(batch)
        return np.stack([found[name][row, :length].reshape(length, -1).T for name in found])

    before = of_tokens(batch)
    for place in range(length):
        changed = np.abs(of_tokens(_with_other_token(batch, place)) - before).max((0, 1))
        sees = np.arange(length) >= (place if way == "left to right" else 0)
        assert (changed[sees] > 1e-5).all() and (changed[~sees] == 0).all()
    batch["input_ids"] = np.where(batch["input_mask"] == 0, 50, batch["input_ids"])
    np.testing.assert_array_equal(of_tokens(batch), before)
