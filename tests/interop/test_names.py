"""The table of names: complete, one to one, and the same both ways."""

from math import prod

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop import names
from bertjax.interop.google import in_hugging_face_terms
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import KINDS, SPEC


def _arrays(entries, seed=0):
    rng = np.random.default_rng(seed)
    return {entry.hf_name: rng.normal(size=entry.shape).astype(np.float32) for entry in entries}


@pytest.mark.parametrize("head_spec", KINDS)
def test_it_fills_exactly_the_parameters_of_the_module(head_spec):
    kind, of_choices = KINDS[head_spec], head_spec == "BertForMultipleChoice"
    inputs = text_inputs(SPEC, **(dict(B=2, C=3, S=5) if of_choices else dict(B=2, S=5)))
    classes = 1 if of_choices else 3
    module = HEAD_SPECS[kind].build(SPEC, classes)

    def init(inputs):
        return module.init(jax.random.key(0), inputs, deterministic=True)["params"]

    wanted = flatten_dict(nn.unbox(jax.eval_shape(init, inputs)), sep="/")
    entries = array_names(HEAD_SPECS[kind].parts(SPEC), SPEC, kind, classes)
    result = flatten_dict(names.to_jax(_arrays(entries), entries, "test"), sep="/")
    assert {k: v.shape for k, v in result.items()} == {k: v.shape for k, v in wanted.items()}


def test_write_then_read_is_bit_equal():
    parts = ("bert", "pooler", "masked_lm", "next_sentence_head", "classifier", "span")
    entries = array_names(parts, SPEC, head_types.PRE_TRAINING, 3)
    arrays = _arrays(entries)
    assert len(arrays) == len(entries)
    again = names.to_hf(names.to_jax(arrays, entries, "test"), entries)
    assert again.keys() == arrays.keys()
    for name, array in arrays.items():
        assert array.tobytes() == again[name].tobytes(), name
        assert again[name].flags.c_contiguous


def test_products_that_are_stored_as_here():
    """[in, out], as in GPT-2's Conv1D, with query, key and value in one array."""
    sizes = {"qkv/kernel": ((6, 3, 2, 5), 1), "qkv/bias": ((3, 2, 5), 0)}
    sizes |= {"output/kernel": ((2, 5, 6), 2)}
    rows = (("qkv", "attn", names.without_transpose), ("output", "out", names.without_transpose))
    entries = list(names.expand(rows, "", sizes))
    arrays = _arrays(entries)
    shapes = {"attn.weight": (6, 30), "attn.bias": (30,), "out.weight": (10, 6)}
    assert {name: array.shape for name, array in arrays.items()} == shapes
    result = names.to_jax(arrays, entries, "test")
    head, column, row = 1, 3, 4
    place = head * 5 + column
    of_value = 2 * 10 + place
    assert result["qkv"]["kernel"][row, 2, head, column] == arrays["attn.weight"][row, of_value]
    assert result["qkv"]["bias"][2, head, column] == arrays["attn.bias"][of_value]
    assert result["output"]["kernel"][head, column, row] == arrays["out.weight"][place, row]
    again = names.to_hf(result, entries)
    assert {name: again[name].tobytes() for name in shapes} == {
        name: arrays[name].tobytes() for name in shapes
    }


def test_our_arrays_are_in_order_of_memory():
    """Otherwise a library that writes memory unchanged, such as safetensors, would garble them."""
    entries = array_names(("bert", "pooler", "masked_lm"), SPEC, head_types.PRE_TRAINING, 0)
    for leaf in jax.tree.leaves(names.to_jax(_arrays(entries), entries, "test")):
        assert leaf.flags.c_contiguous


def test_the_place_of_a_product():
    """Checks single elements by hand: of head 2 of the key, and of the attention's output."""
    entries = array_names(("bert",), SPEC, head_types.ENCODER, 0)
    arrays = _arrays(entries)
    result = flatten_dict(names.to_jax(arrays, entries, "test"), sep="/")
    head, column, row = 2, 5, 11  # H = 8
    at = "bert.encoder.layer.1.attention"
    assert (
        result["bert/encoder/layer_1/attention/qkv/kernel"][row, 1, head, column]
        == arrays[f"{at}.self.key.weight"][head * 8 + column, row]
    )
    assert (
        result["bert/encoder/layer_1/attention/qkv/bias"][2, head, column]
        == arrays[f"{at}.self.value.bias"][head * 8 + column]
    )
    assert (
        result["bert/encoder/layer_1/attention/output/kernel"][head, column, row]
        == arrays[f"{at}.output.dense.weight"][row, head * 8 + column]
    )


def test_missing_and_misshapen_arrays():
    entries = array_names(("bert",), SPEC, head_types.ENCODER, 0)
    arrays = _arrays(entries)
    name = "bert.encoder.layer.1.output.dense.bias"
    with pytest.raises(InputError, match=f"here: {name} is missing"):
        names.to_jax({k: v for k, v in arrays.items() if k != name}, entries, "here")
    with pytest.raises(InputError, match=rf"here: {name} has the shape \[23\].*have \[24\]"):
        names.to_jax(arrays | {name: arrays[name][:-1]}, entries, "here")


@pytest.mark.parametrize(
    "name, canonical",
    [
        ("embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        ("encoder.layer.3.output.LayerNorm.beta", "bert.encoder.layer.3.output.LayerNorm.bias"),
        ("bert.pooler.dense.weight", "bert.pooler.dense.weight"),
        ("pooler.dense.bias", "bert.pooler.dense.bias"),
        ("classifier.weight", "classifier.weight"),
        ("cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"),
    ],
)
def test_old_names(name, canonical):
    assert PUBLISHED["bert"].one_spelling(name) == canonical


@pytest.mark.parametrize(
    "name, canonical, transposed",
    [
        (
            "bert/encoder/layer_11/attention/self/query/kernel",
            "bert.encoder.layer.11.attention.self.query.weight",
            True,
        ),
        ("bert/encoder/layer_0/output/dense/bias", "bert.encoder.layer.0.output.dense.bias", False),
        ("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight", False),
        (
            "bert/embeddings/token_type_embeddings",
            "bert.embeddings.token_type_embeddings.weight",
            False,
        ),
        ("bert/embeddings/LayerNorm/gamma", "bert.embeddings.LayerNorm.weight", False),
        ("bert/pooler/dense/kernel", "bert.pooler.dense.weight", True),
        ("cls/predictions/output_bias", "cls.predictions.bias", False),
        (
            "cls/predictions/transform/LayerNorm/beta",
            "cls.predictions.transform.LayerNorm.bias",
            False,
        ),
        ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight", False),
        ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias", False),
    ],
)
def test_names_of_google(name, canonical, transposed):
    array = np.arange(6).reshape(2, 3)
    found, result = in_hugging_face_terms(name, array)
    assert found == canonical
    np.testing.assert_array_equal(result, array.T if transposed else array)


# Parts that a kind's models have, and transformers' do not.
_ONLY_OURS = {("gpt2", head_types.MULTIPLE_CHOICE), ("openai-gpt", head_types.MULTIPLE_CHOICE)}
_ONLY_OURS |= {(name, head_types.QUESTION_ANSWERING) for name in ("eurobert", "neobert")}


@pytest.mark.parametrize(
    "name", others_slow(PUBLISHED, *("bert", "roberta", "electra", "gpt2", "modernbert", "xlnet"))
)
def test_the_rows_name_every_array(name):
    """But ELECTRA's head for replaced tokens in other families, and ELMo's for the next word."""
    family = ENCODERS[name]
    spec = family.spec.named("tiny" if name != "elmo" else "small", num_hidden_layers=3)
    seen: set[str] = set()
    for kind, heads in family.heads.items():
        parts = {name, *heads} - {"next_word"}
        parts -= {"replaced_tokens"} if name != "electra" else set()
        parts -= {"classifier", "span"} if (name, kind) in _ONLY_OURS else set()
        assert all(PUBLISHED[name].rows(part, kind) for part in parts - {name})
        if parts <= seen:  # all its arrays are those of other kinds
            continue
        seen |= parts
        entries = array_names(parts, spec, kind, 5)
        arrays = names.arrays_of(spec, kind, 5)
        assert {entry.path for entry in entries} == {
            path for path in arrays if path.split("/")[0] in parts
        }
        assert len({entry.hf_name for entry in entries}) == len(entries)


@pytest.mark.parametrize(
    "name, size, expected",
    [
        ("eurobert", "210m", 211_766_016),
        ("eurobert", "610m", 607_874_688),
        ("eurobert", "2.1b", 2_107_590_912),
        ("neobert", "250m", 221_665_536),
    ],
)
def test_published_sizes_have_as_many_parameters(name, size, expected):
    arrays = names.arrays_of(ENCODERS[name].spec.named(size), head_types.ENCODER, 0)
    assert sum(prod(shape) for shape, _ in arrays.values()) == expected


def test_arrays_that_are_stacked_here():
    """Two in one array, on the first axis of the outputs: a gate, and keys next to values."""
    sizes = {"in/kernel": ((6, 2, 5), 1), "kv/kernel": ((6, 2, 3, 4), 1), "kv/bias": ((2, 3, 4), 0)}
    rows = (("in", "mlp.(gate|up)_proj"), ("kv", "(k|v)_proj"), ("query", "q_proj"))
    entries = list(names.expand(rows, "", sizes))
    arrays = _arrays(entries)
    result = names.to_jax(arrays, entries, "test")
    assert result["in"]["kernel"][4, 1, 3] == arrays["mlp.up_proj.weight"][3, 4]
    assert result["kv"]["kernel"][5, 0, 2, 1] == arrays["k_proj.weight"][2 * 4 + 1, 5]
    assert result["kv"]["bias"][1, 2, 3] == arrays["v_proj.bias"][2 * 4 + 3]
    assert {path: array.shape for path, array in flatten_dict(result, sep="/").items()} == {
        path: shape for path, (shape, _) in sizes.items()
    }
    again = names.to_hf(result, entries)
    assert {key: array.tobytes() for key, array in again.items()} == {
        key: array.tobytes() for key, array in arrays.items()
    }
