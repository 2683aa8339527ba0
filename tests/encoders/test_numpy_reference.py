"""The whole function of BERT and of ModernBERT is that of a forward pass in plain numpy."""

import functools

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.encoders.bert.spec import BertSpec
from bertjax.encoders.modernbert.spec import ModernBertSpec
from bertjax.heads.architectures import text_inputs
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.training.model import zeros
from tests.encoders import numpy_reference as reference

LENGTH, VOCABULARY = 29, 37
ACTIVATIONS = {"gelu": reference.gelu, "gelu_tanh": reference.gelu_tanh}
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=24,
    num_attention_heads=3,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def _params(model):
    """Random values in every array; embeddings so small that the epsilon of norms counts."""
    inputs = zeros(text_inputs(model.spec, B=1, S=5))
    shapes = jax.eval_shape(
        lambda key: nn.unbox(model.init(key, inputs, deterministic=True)["params"]),
        jax.random.key(0),
    )
    rng = np.random.default_rng(3)
    small = ("embeddings/token", "embeddings/segment", "embeddings/position", "masked_lm/bias")

    def draw(path, leaf):
        name = "/".join(key.key for key in path)
        mean, deviation = (1, 0.2) if name.endswith("scale") else (0, 0.25)
        deviation = 0.01 if name.endswith(small) else deviation
        return rng.normal(mean, deviation, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def _assert_is_the_reference(model, packed: bool, forward):
    """Compares all outputs at every token of three rows; what is behind their tokens is padding.

    Args:
      forward: (params by path, ids, segments, positions, sees) of one row -> see the reference.
    """
    rng = np.random.default_rng(8)
    lengths = (LENGTH, 23, 3)
    mask = (np.arange(LENGTH) < np.array(lengths)[:, None]).astype(np.int32)
    ids = rng.integers(0, VOCABULARY, mask.shape)
    segments = rng.integers(0, 2, mask.shape) * mask
    documents, positions = mask.copy(), np.tile(np.arange(LENGTH), (3, 1))
    if packed:
        sizes = [12, 4, 7, 6]
        documents[0] = np.repeat([1, 2, 3, 4], sizes)
        positions[0] = np.concatenate([np.arange(size) for size in sizes])

    def both(model, inputs):
        states = model.encoder.hidden_states(inputs, deterministic=True)
        return states, model(inputs, deterministic=True)

    params = _params(model)
    apply = jax.jit(functools.partial(model.apply, method=both))
    inputs = {"input_ids": ids, "input_mask": mask, "token_type_ids": segments}
    if packed:
        inputs["segment_ids"] = documents
    states, logits = apply({"params": params}, inputs)
    by_path = {path: leaf.astype(float) for path, leaf in flatten_dict(params, sep="/").items()}
    for row, length in enumerate(lengths):
        here = row, slice(length)
        sees = documents[here][:, None] == documents[here]
        wanted_states, wanted = forward(by_path, ids[here], segments[here], positions[here], sees)
        found = {"masked_lm": logits["masked_lm"][here]}
        if "next_sentence" in logits:
            found["next_sentence"] = logits["next_sentence"][row]
        assert len(states) == len(wanted_states) and found.keys() == wanted.keys()
        found |= {f"layer {i}": x[here] for i, x in enumerate(states)}
        wanted |= {f"layer {i}": x for i, x in enumerate(wanted_states)}
        for name, x in wanted.items():
            error = np.abs(found[name] - x).max() / np.sqrt(np.mean(x**2))
            assert error < 2e-5, f"row {row}, {name}"


@pytest.mark.parametrize(
    "hidden_act, packed, causal", [("gelu", False, False), ("gelu_tanh", True, True)]
)
def test_bert(hidden_act, packed, causal):
    """Two layers with both heads, and left to right (Table 5)."""
    spec = BertSpec(
        **SIZES, num_hidden_layers=2, intermediate_size=40, hidden_act=hidden_act, causal=causal
    )

    def forward(p, ids, segments, positions, sees):
        sees = np.tril(sees) if causal else sees
        return reference.bert(p, ids, segments, positions, sees, ACTIVATIONS[hidden_act])

    _assert_is_the_reference(PreTrainingModel(spec), packed, forward)


@pytest.mark.parametrize(
    "hidden_act, packed, local_attention", [("gelu", False, 18), ("gelu_tanh", True, 6)]
)
def test_modernbert(hidden_act, packed, local_attention):
    """Four layers, of which 0 and 3 are global; windows by a mask (18), and by blocks (6)."""
    spec = ModernBertSpec(
        **SIZES,
        num_hidden_layers=4,
        intermediate_size=40,
        hidden_act=hidden_act,
        local_attention=local_attention,
    )

    def forward(p, ids, segments, positions, sees):
        del segments
        activation = ACTIVATIONS[hidden_act]
        return reference.modernbert(p, ids, positions, sees, local_attention // 2, activation)

    _assert_is_the_reference(PreTrainingModel(spec, next_sentence=False), packed, forward)
