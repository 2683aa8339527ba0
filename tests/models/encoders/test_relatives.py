"""The families that are like BERT: the names and the functions of transformers."""

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face, transformers_check
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.proof import outputs, random_inputs
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.storage import from_canonical, to_canonical
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from tests.helpers.same_as_transformers import peer_of, same_as_transformers, same_function
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import CLASSES, FAMILIES, PIECES, family_model, small_spec

CASES = [(name, kind) for name in FAMILIES for kind in PUBLISHED[name].classes]
# XLM-RoBERTa and CamemBERT are RoBERTa with other classes.
SAME_AS_ROBERTA = ("xlm-roberta", "camembert")
PROVEN = [
    (name, kind)
    for name, kind in CASES
    if name != "neobert" and kind not in PUBLISHED[name].elsewhere  # transformers has none
]
WITH_CLASSES = (head_types.SEQUENCE_CLASSIFICATION, head_types.TOKEN_CLASSIFICATION)
VOCABULARY = len(PIECES)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Path:
    """Whose padding has the id 1, as RoBERTa's."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in (PIECES[1], PIECES[0], *PIECES[2:])))
    return path


@pytest.mark.parametrize(
    "name, kind",
    others_slow(CASES, *(case for case in CASES if case[1] in (head_types.ENCODER, *WITH_CLASSES))),
)
def test_names_cover_the_parameters(name, kind):
    spec = small_spec(name, vocab_multiple=8)
    head_spec = HEAD_SPECS[kind]
    module = head_spec.build(spec, 1 if "C" in head_spec.axes else 5)
    shape = dict(zip(head_spec.axes, (2, 3, 7)[-len(head_spec.axes) :], strict=True))

    def init(inputs):
        return module.init(jax.random.key(0), inputs, deterministic=True)["params"]

    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype),
        nn.unbox(jax.eval_shape(init, text_inputs(spec, **shape))),
    )
    canonical = to_canonical(params, spec)
    classes = 1 if "C" in head_spec.axes else 5
    entries = array_names(head_spec.parts(spec), spec, kind, classes)
    again = to_jax(to_hf(canonical, entries), entries, "test")
    assert flatten_dict(again).keys() == flatten_dict(canonical).keys()
    jax.tree.map(np.testing.assert_array_equal, again, canonical)
    padded = from_canonical(again, spec)[name]["embeddings"]["token"]
    assert padded.shape[0] == 24 and not padded[VOCABULARY:].any()


@pytest.mark.parametrize("name, kind", CASES)
def test_folders_are_bit_equal_there_and_back(name, kind, vocabulary, tmp_path):
    model = family_model(vocabulary, name, kind)
    hugging_face.write_hugging_face(model, tmp_path)
    again = hugging_face.read_hugging_face(tmp_path, "hf:again")
    assert (again.spec, again.head_type, again.classes) == (model.spec, kind, model.classes)
    assert again.identity == model.identity  # of the tokenizer and of all arrays
    assert again.left_out == {} and again.missing == ()
    written = load_file(tmp_path / "model.safetensors").values()
    assert sum(map(np.size, written)) == sum(map(np.size, jax.tree.leaves(model.params)))


@pytest.mark.peers
@pytest.mark.parametrize(
    "name, kind",
    others_slow(
        PROVEN,
        *(case for case in PROVEN if case[0] not in SAME_AS_ROBERTA),
        *((name, head_types.MASKED_LM) for name in SAME_AS_ROBERTA),
    ),
)
def test_the_same_as_transformers(name, kind, vocabulary):
    same_as_transformers(name, kind, vocabulary)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name, kind, settings",
    [
        ("bert", head_types.TOKEN_CLASSIFICATION, {"causal": True}),
        ("bert", head_types.QUESTION_ANSWERING, {"causal": True}),
        ("bert", head_types.PRE_TRAINING, {"hidden_act": "gelu_tanh"}),
        ("bert", head_types.PRE_TRAINING, {"max_position_embeddings": 1}),
        ("modernbert", head_types.MASKED_LM, {"hidden_act": "gelu_tanh"}),
        # Beyond 12 tokens, windows are taken by blocks.
        ("modernbert", head_types.MASKED_LM, {"max_position_embeddings": 11}),
        ("modernbert", head_types.MASKED_LM, {"max_position_embeddings": 1}),
        ("modernbert", head_types.SEQUENCE_CLASSIFICATION, {"classifier_pooling": "mean"}),
        ("modernbert", head_types.MULTIPLE_CHOICE, {"classifier_pooling": "mean"}),
        # As many heads of keys and values as of queries.
        (
            "eurobert",
            head_types.SEQUENCE_CLASSIFICATION,
            {"classifier_pooling": "mean", "num_key_value_heads": 3},
        ),
        ("eurobert", head_types.SEQUENCE_CLASSIFICATION, {"classifier_pooling": "cls"}),
        # RoBERTa has gelu in its head, whatever is in the layers.
        ("roberta", head_types.MASKED_LM, {"hidden_act": "silu"}),
        ("electra", head_types.MASKED_LM, {"hidden_act": "silu"}),
        ("electra", head_types.REPLACED_TOKENS, {"hidden_act": "silu"}),
        (
            "deberta-v2",
            head_types.MASKED_LM,
            {"hidden_act": "silu", "max_relative_positions": 11, "position_buckets": 6},
        ),
        ("deberta-v2", head_types.ENCODER, {"conv_kernel_size": 3}),
        ("deberta-v2", head_types.MASKED_LM, {"conv_kernel_size": 5, "conv_act": "tanh"}),
        ("distilbert", head_types.MASKED_LM, {"hidden_act": "silu"}),
        ("openai-gpt", head_types.CAUSAL_LM, {"hidden_act": "silu"}),
        ("gpt2", head_types.CAUSAL_LM, {"hidden_act": "silu"}),
        ("xlnet", head_types.PERMUTATION_LM, {"hidden_act": "silu"}),
    ],
)
def test_settings_are_those_of_transformers(name, kind, settings, vocabulary):
    same_as_transformers(name, kind, vocabulary, **settings)


@pytest.mark.peers
@pytest.mark.parametrize("kind", PUBLISHED["neobert"].classes)
def test_neobert_computes_what_its_own_code_does(kind, vocabulary):
    """2/3 of the 57 columns are 38, and the next multiple of 8 is 40."""
    import torch

    from tests.models.encoders import neobert_reference

    model = family_model(vocabulary, "neobert", kind, intermediate_size=40)
    config = hugging_face.config_of(model) | {"intermediate_size": 57, "num_labels": len(CLASSES)}
    assert hugging_face.spec_of(config, model.family, "test") == model.spec
    fields = {each.name for each in dataclasses.fields(neobert_reference.NeoBERTConfig)}
    config = neobert_reference.NeoBERTConfig(**{key: config[key] for key in fields & config.keys()})
    peer = getattr(neobert_reference, model.class_name)(config).eval()
    bare = model.names.bare * (kind == head_types.ENCODER)
    arrays = to_hf(model.params, model.entries).items()
    peer.load_state_dict({key.removeprefix(bare): torch.tensor(array) for key, array in arrays})
    inputs = random_inputs(model)
    same_function(model, peer, inputs, transformers_check.inputs(inputs))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["roberta", "distilbert", "electra", "xlm"])
def test_positions_and_languages_that_a_batch_gives(name, vocabulary, tmp_path):
    """As of a text and its translation; also the gradient of the embeddings of languages."""
    import torch

    model = family_model(vocabulary, name, head_types.MASKED_LM)
    alone = {key: array[2:] for key, array in random_inputs(model).items()}
    mask = alone["input_mask"]
    column, begin = np.arange(mask.shape[1]), (mask.sum(1) // 3)[:, None]
    in_b = column >= begin
    positions = column - begin * in_b
    inputs = alone | {"position_ids": positions.astype(np.int32)}
    hf_inputs = transformers_check.inputs(inputs)
    of_roberta = np.where(mask, positions + 2, 1)
    hf_inputs["position_ids"] = torch.tensor(of_roberta if name == "roberta" else positions)
    if name == "xlm":
        inputs["language_ids"] = np.where(in_b, 3, 1).astype(np.int32)
        hf_inputs["langs"] = torch.tensor(inputs["language_ids"]).long()
    same_function(model, peer_of(model, tmp_path), inputs, hf_inputs)
    found, other = (outputs(model.model(), model.params, each) for each in (inputs, alone))
    assert np.abs(found["masked_lm"] - other["masked_lm"]).max() > 0.1


def test_xlm_that_is_computed_in_another_way_is_refused():
    fields = {"emb_dim": 24, "n_heads": 3, "n_layers": 2, "n_words": VOCABULARY, "pad_index": 2}
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["xlm"], origin="test")
    usual = dict(initializer_range=0.02, layer_norm_eps=1e-12)
    spec = small_spec("xlm", max_position_embeddings=512, type_vocab_size=0, **usual)
    assert read(fields) == spec
    assert read(fields | {"n_langs": 15}).type_vocab_size == 15
    assert read(fields | {"n_langs": 17, "use_lang_emb": False}).type_vocab_size == 0
    assert read(fields | {"sinusoidal_embeddings": True}) == read(fields)
    for name, value in (
        ("causal", True),
        ("asm", True),
        ("gelu_activation", False),
        ("summary_type", "last"),
    ):
        with pytest.raises(InputError, match=f"{name}={value!r}: only .* can be read"):
            read(fields | {name: value})
    with pytest.raises(InputError, match="summary_activation='tanh': cannot be read"):
        read(fields | {"summary_activation": "tanh"})
    for changes, message in (
        ({"causal": True}, "no xlm with causal=True"),
        ({"intermediate_size": 56}, "no xlm with intermediate_size=56, only 96"),
    ):
        with pytest.raises(ValueError, match=message):
            PUBLISHED["xlm"].config.write(small_spec("xlm", **changes))
    with pytest.raises(ValueError, match="type_vocab_size=1: the number of languages"):
        small_spec("xlm", type_vocab_size=1)


@pytest.mark.parametrize("name", FAMILIES)
def test_settings_are_written_and_read(name):
    changes = dict(hidden_act="silu", layer_norm_eps=1e-7, initializer_range=0.01)
    changes |= dict(classifier_pooling="mean", global_rope_theta=1e5)
    changes |= dict(conv_kernel_size=3, conv_act="tanh")
    changes |= dict(hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.25)
    config = PUBLISHED[name].config
    fields = {*ENCODERS[name].spec.fields}.difference(config.lost)
    spec = small_spec(name, **{key: changes[key] for key in changes.keys() & fields})
    if name == "xlm":
        with pytest.raises(ValueError, match="no xlm with hidden_act='silu', only 'gelu'"):
            config.write(spec)
        spec = dataclasses.replace(spec, hidden_act="gelu")
    assert hugging_face.spec_of(config.write(spec), ENCODERS[name], "test") == spec


def test_gelu_of_openai_gpt_is_that_by_tanh():
    with pytest.raises(ValueError, match="no openai-gpt with hidden_act='gelu', only gelu_tanh"):
        PUBLISHED["openai-gpt"].config.write(ENCODERS["openai-gpt"].spec(hidden_act="gelu"))


def test_eurobert_that_is_computed_in_another_way_is_refused():
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["eurobert"], origin="test")
    old = {"rope_theta": 160_000.0, "rope_scaling": None, "num_key_value_heads": 6}
    spec = read(old | {"head_dim": 64, "clf_pooling": "late", "classifier_pooling": "late"})
    assert (spec.global_rope_theta, spec.num_key_value_heads) == (160_000, 6)
    rope = {"rope_theta": 10_000.0, "rope_type": "default"}
    new = {"rope_parameters": rope, "num_key_value_heads": None, "classifier_pooling": "bos"}
    spec = read(new)
    assert (spec.global_rope_theta, spec.num_key_value_heads) == (10_000, 0)
    written = PUBLISHED["eurobert"].config.write(spec)
    assert written["rope_parameters"] == rope and written["classifier_pooling"] == "bos"
    assert "num_key_value_heads" not in written and spec.classifier_pooling == "cls"
    for changes, message in (
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True: only False can be read"),
        ({"attention_bias": True}, "attention_bias=True: only False can be read"),
        ({"mlp_bias": True}, "mlp_bias=True: only False can be read"),
        ({"is_causal": True}, "is_causal=True: only False can be read"),
        ({"head_dim": 32}, "head_dim=32: only hidden_size / num_attention_heads can be read"),
        ({"rope_scaling": {"type": "linear"}}, "rotary positions without scaling"),
        ({"rope_parameters": rope | {"rope_type": "llama3"}}, "rope_type='llama3': only 'default'"),
        ({"classifier_pooling": "cls"}, "classifier_pooling='cls': must be one of bos, mean, late"),
        ({"clf_pooling": "mean"}, "clf_pooling='mean', which transformers ignores"),
        ({"num_key_value_heads": 5}, "num_key_value_heads=5 does not divide"),
    ):
        with pytest.raises(InputError, match=message):
            read(old | changes)
    with pytest.raises(InputError, match="rope_theta is missing: the published code takes 250000"):
        read({})
    with pytest.raises(ValueError, match="no EuroBERT with causal=True"):
        PUBLISHED["eurobert"].config.write(dataclasses.replace(spec, causal=True))


def test_neobert_that_is_computed_in_another_way_is_refused():
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["neobert"], origin="test")
    write = PUBLISHED["neobert"].config.write
    spec = read({"intermediate_size": 57, "hidden_act": "swiGLU", "max_length": 62})
    assert (spec.intermediate_size, spec.layer_norm_eps) == (40, 1e-6)
    written = write(dataclasses.replace(spec, initializer_range=0.01))
    assert written["intermediate_size"] == 60 and written["embedding_init_range"] == 0.01
    assert written["auto_map"]["AutoModel"] == "chandar-lab/NeoBERT--model.NeoBERT"
    assert read(written) == dataclasses.replace(spec, initializer_range=0.01)
    for changes, message in (
        ({"rms_norm": False}, "rms_norm=False: only True can be read"),
        ({"rope": False}, "rope=False: only True can be read"),
        ({"ngpt": True}, "ngpt=True: only False can be read"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu': only 'SwiGLU' can be read"),
        ({"embedding_init_range": 0.01}, "embedding_init_range=0.01: only that of decoder_init"),
        ({"dim_head": 96}, "dim_head=96: only hidden_size / num_attention_heads can be read"),
    ):
        with pytest.raises(InputError, match=message):
            read(changes)
    for changes, message in (
        ({"intermediate_size": 42}, "intermediate_size=42: must be a multiple of 8"),
        ({"hidden_act": "gelu"}, "no NeoBERT with hidden_act='gelu', only 'silu'"),
        ({"causal": True}, "no NeoBERT with causal=True"),
    ):
        with pytest.raises(ValueError, match=message):
            write(dataclasses.replace(spec, **changes))


def test_a_decoder_that_is_not_tied(vocabulary):
    for name, tied in (("eurobert", False), ("neobert", False), ("roberta", True)):
        config = hugging_face.config_of(family_model(vocabulary, name, head_types.MASKED_LM))
        assert config["tie_word_embeddings"] is tied


def test_positions_begin_behind_the_id_of_the_padding():
    spec = small_spec("roberta")
    assert spec.position_rows == 64 and small_spec("electra").position_rows == 62
    fields = PUBLISHED[spec.encoder].config.write(spec)
    assert (fields["max_position_embeddings"], fields["pad_token_id"]) == (64, 1)
    assert small_spec("roberta", pad_token_id=0).position_rows == 63
    with pytest.raises(ValueError, match="pad_token_id=-1: must be at least 0"):
        small_spec("roberta", pad_token_id=-1)


@pytest.mark.parametrize(
    "name, kind, decoder, table",
    [
        ("roberta", head_types.MASKED_LM, "lm_head.decoder", "roberta.embeddings.word_embeddings"),
        ("modernbert", head_types.MASKED_LM, "decoder", "model.embeddings.tok_embeddings"),
        ("gpt2", head_types.CAUSAL_LM, "lm_head", "transformer.wte"),
        ("openai-gpt", head_types.ENCODER, "lm_head", "transformer.tokens_embed"),
    ],
)
def test_a_decoder_of_its_own_is_refused(name, kind, decoder, table, vocabulary):
    """One that repeats the embeddings is left out, and stands for them where they are missing."""
    model = family_model(vocabulary, name, kind)
    arrays = to_hf(model.params, model.entries)
    decoder, table = f"{decoder}.weight", f"{table}.weight"
    read = functools.partial(
        hugging_face.assemble,
        spec=model.spec,
        head_type=kind,
        tokenizer=model.tokenizer,
        origin="test",
    )
    with pytest.raises(InputError, match=rf"test: {decoder} differs from {table}: only a model in"):
        read(arrays | {decoder: arrays[table] + 1})
    tied = arrays | {decoder: arrays[table]}
    for found in (read(tied), read({key: tied[key] for key in tied if key != table})):
        jax.tree.map(np.testing.assert_array_equal, found.params, model.params)
        assert found.left_out == {decoder: f"{table} once more"}


def test_a_summary_that_is_computed_in_another_way_is_refused():
    config = {"model_type": "electra", "summary_type": "mean"}
    with pytest.raises(InputError, match="summary_type='mean': only 'first' can be read"):
        hugging_face.spec_of(config, ENCODERS["electra"], "test")


def test_a_config_without_the_fields_that_have_usual_values():
    """As OpenAI's published models have it, from before these fields."""
    fields = {"n_embd": 24, "n_head": 3, "n_inner": None, "vocab_size": VOCABULARY}
    spec = hugging_face.spec_of(fields, ENCODERS["gpt2"], "test")
    assert (spec.intermediate_size, spec.hidden_act, spec.causal) == (96, "gelu_tanh", True)
    for name, wrong in (("gpt2", {"scale_attn_weights": False}), ("openai-gpt", {"afn": "relu"})):
        with pytest.raises(InputError, match=f"{next(iter(wrong))}=.*: (only|must be one of) "):
            hugging_face.spec_of(fields | wrong, ENCODERS[name], "test")
    with pytest.raises(ValueError, match="no openai-gpt with intermediate_size=56, only 96"):
        spec = small_spec("openai-gpt", intermediate_size=56)
        PUBLISHED[spec.encoder].config.write(spec)


def test_gpt_reads_left_to_right_only():
    with pytest.raises(ValueError, match="causal=False: gpt2 reads left to right only"):
        small_spec("gpt2", causal=False)


@pytest.mark.parametrize("name", others_slow(["openai-gpt", "gpt2"], "gpt2"))
def test_fresh_kernels_into_the_residual(name):
    """GPT-2 scales them by the root of the number of its residual layers."""
    sizes = dict(hidden_size=96, intermediate_size=384, num_hidden_layers=8)
    spec = small_spec(name, **sizes, initializer_range=0.02)
    module = HEAD_SPECS[head_types.CAUSAL_LM].build(spec, 0)
    inputs = {name: np.zeros(x.shape, x.dtype) for name, x in text_inputs(spec, B=1, S=3).items()}
    init = jax.jit(functools.partial(module.init, deterministic=True))
    params = jax.device_get(nn.unbox(init(jax.random.key(0), inputs))["params"])
    layer = params[name]["encoder"]["layer_3"]
    whole = 0.88 * 0.02
    scaled = whole / 4 if name == "gpt2" else whole
    for kernel, deviation in (
        (layer["attention"]["qkv"]["kernel"], whole),
        (layer["attention"]["output"]["kernel"], scaled),
        (layer["intermediate"]["kernel"], whole),
        (layer["output"]["kernel"], scaled),
    ):
        assert float(kernel.std()) == pytest.approx(deviation, rel=0.05)
