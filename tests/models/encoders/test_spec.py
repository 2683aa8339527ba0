"""Published sizes by name, and refused values."""

import dataclasses

import pytest

from bertjax.models.encoders.presets import (
    SIZES,
    BertSpec,
    EuroBertSpec,
    ModernBertSpec,
    RobertaSpec,
    XlmRobertaSpec,
)
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.spec import COMPUTED

# Layers, hidden size, heads: Turc et al. (arXiv 1908.08962), Table 1; BERT, section 3 and Table 6.
PUBLISHED = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "L3_H768_A12": (3, 768, 12),
    "L6_H768_A3": (6, 768, 3),
    "L6_H768_A12": (6, 768, 12),
    "L12_H768_A12": (12, 768, 12),
    "L12_H1024_A16": (12, 1024, 16),
    "L24_H1024_A16": (24, 1024, 16),
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_named_size_is_the_published_one(size):
    spec = BertSpec.named(size)
    layers, hidden, heads = PUBLISHED[size]
    assert (spec.num_hidden_layers, spec.hidden_size, spec.num_attention_heads) == (
        layers,
        hidden,
        heads,
    )
    assert spec.intermediate_size == 4 * hidden
    assert spec.head_width * heads == hidden
    assert (spec.vocab_size, spec.max_position_embeddings, spec.type_vocab_size) == (30_522, 512, 2)


def test_every_size_is_published():
    assert SIZES.keys() == PUBLISHED.keys()


def test_the_default_is_base_with_the_papers_values():
    spec = BertSpec()
    assert spec == BertSpec.named("base")
    assert spec.hidden_act == "gelu"
    assert (spec.hidden_dropout_prob, spec.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (spec.initializer_range, spec.layer_norm_eps) == (0.02, 1e-12)


def test_named_takes_other_fields():
    spec = BertSpec.named("tiny", vocab_size=11, intermediate_size=7)
    assert (spec.vocab_size, spec.intermediate_size, spec.hidden_size) == (11, 7, 128)


@pytest.mark.parametrize("multiple, padded", [(1, 97), (8, 104), (97, 97), (128, 128)])
def test_padded_vocab_size(multiple, padded):
    assert BertSpec(vocab_size=97, vocab_multiple=multiple).padded_vocab_size == padded


def test_flops_of_base():
    """Each token takes 6 x (weights of the products), counted by hand from the paper's sizes."""
    layer = 4 * 768**2 + 2 * 768 * 3072
    attention = 2 * 128 * 768  # scores and context
    head = 20 / 128 * (768 * 30_522 + 768**2)
    expected = 6 * (12 * (layer + attention) + head)
    assert BertSpec().flops_per_token(128, 20) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["openai-gpt", "gpt2", "xlm", "electra"])
def test_flops_of_relatives(name):
    """The decoder has no layer before it; ELECTRA's is narrow, as its embeddings are."""
    sizes = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=96)
    spec = ENCODERS[name].spec(**sizes, vocab_size=97)
    layers = 3 * (4 * 24**2 + 2 * 24 * 96 + 2 * 24 * 7.5)
    others = 2 / 11 * 24 * 97
    if name == "electra":
        others = 128 * 24 + 2 / 11 * (24 * 128 + 128 * 97)
    assert spec.flops_per_token(11, 2, 7.5) == pytest.approx(6 * (layers + others))


def test_flops_where_keys_have_fewer_heads():
    sizes = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=6, intermediate_size=40)
    spec = EuroBertSpec(**sizes, num_key_value_heads=2, vocab_size=97)
    layer = 2 * 24**2 + 2 * 24 * (2 * 4) + 3 * 24 * 40 + 2 * 24 * 11
    assert spec.flops_per_token(11, 2) == pytest.approx(6 * (3 * layer + 2 / 11 * 24 * 97))


def test_what_a_preset_does_not_open_is_a_constant():
    """No config may name it, no spec of a run has it, and a preset of a preset keeps it."""
    names = {field.name for field in dataclasses.fields(XlmRobertaSpec)}
    assert names == {*RobertaSpec.fields, *COMPUTED} == dataclasses.asdict(XlmRobertaSpec()).keys()
    assert (XlmRobertaSpec.positions, XlmRobertaSpec().vocab_size) == ("counted", 250_002)
    assert (RobertaSpec().vocab_size, BertSpec.positions) == (50_265, "learned")
    with pytest.raises(TypeError, match="unexpected keyword argument 'positions'"):
        BertSpec(positions="rotary")


@pytest.mark.parametrize(
    "spec, fields, message",
    [
        (EuroBertSpec, dict(num_key_value_heads=5), "5 does not divide num_attention_heads=12"),
        (EuroBertSpec, dict(hidden_size=36), "a width of 3: rotary positions need an even width"),
        (EuroBertSpec, dict(global_rope_theta=1.0), "global_rope_theta=1.0: must be above 1"),
        (EuroBertSpec, dict(classifier_pooling="max"), "classifier_pooling='max': must be one of"),
        (ModernBertSpec, dict(local_attention=1), "local_attention=1: must be at least 2"),
        (ModernBertSpec, dict(scan_layers=True), "the layers of modernbert are not alike"),
        (ModernBertSpec, dict(positions="counted"), "positions='counted': must be one of"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(spec, fields, message):
    with pytest.raises(ValueError, match=message):
        spec(**fields)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(hidden_act="relu"), "hidden_act='relu': must be one of"),
        (dict(compute_dtype="float16"), "compute_dtype='float16': must be one of"),
        (dict(attention="flash"), "attention='flash': must be one of"),
        (dict(remat="all"), "remat='all': must be one of"),
        (dict(num_hidden_layers=0), "num_hidden_layers=0: must be at least 1"),
        (dict(num_hidden_layers=2.0), "num_hidden_layers=2.0: expected `int`"),
        (dict(vocab_size="97"), "vocab_size='97': expected `int`"),
        (dict(layer_norm_eps=float("nan")), r"layer_norm_eps=nan: must be in \[0, 1\)"),
        (dict(vocab_size=-3), "vocab_size=-3: must be at least 1"),
        (dict(hidden_dropout_prob=1.0), r"hidden_dropout_prob=1.0: must be in \[0, 1\)"),
        (dict(attention_probs_dropout_prob=-0.1), "attention_probs_dropout_prob=-0.1: must be in"),
        (dict(hidden_size=100), "hidden_size=100 does not divide over num_attention_heads=12"),
        (dict(attention="fused"), "set attention_probs_dropout_prob=0.0"),
    ],
)
def test_a_value_that_does_not_fit_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        BertSpec(**fields)


def test_an_unknown_size_is_named():
    with pytest.raises(ValueError, match="size='huge': must be one of tiny, mini"):
        BertSpec.named("huge")


def test_a_spec_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BertSpec().hidden_size = 1
