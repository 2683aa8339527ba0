"""What inference servers need of an exported folder.

The rules are those that their sources had in November 2026. docs/results/weights.md says which
files were read, and what was run.
"""

import json

import pytest
from safetensors.numpy import load_file

from bertjax.interop.hugging_face import fields_of, write_hugging_face
from bertjax.models.encoders import head_types
from bertjax.models.heads.embedding import Embedding
from bertjax.models.heads.vector_modules import VectorModule
from tests.helpers.small_models import family_model, small_spec, with_vectors

# The fields without a default in the structs of text-embeddings-inference.
_SIZES = dict.fromkeys(
    ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
     "max_position_embeddings"), int,
)  # fmt: skip
_BERT = {
    **_SIZES,
    **dict.fromkeys(("type_vocab_size", "pad_token_id"), int),
    **dict.fromkeys(("hidden_dropout_prob", "initializer_range", "layer_norm_eps"), float),
    "hidden_act": str,
}
_DISTILBERT = {
    **dict.fromkeys(("vocab_size", "dim", "n_layers", "n_heads", "hidden_dim"), int),
    **dict.fromkeys(("max_position_embeddings", "pad_token_id"), int),
    "activation": str,
}
_MODERNBERT = {
    **_SIZES,
    **dict.fromkeys((f"{role}_token_id" for role in ("pad", "eos", "bos", "cls", "sep")), int),
    **dict.fromkeys(("global_attn_every_n_layers", "local_attention"), int),
    **dict.fromkeys(("initializer_range", "initializer_cutoff_factor", "norm_eps"), float),
    **dict.fromkeys(("global_rope_theta", "local_rope_theta", "attention_dropout"), float),
    **dict.fromkeys(("norm_bias", "attention_bias"), bool),
    **dict.fromkeys(("hidden_activation", "classifier_activation"), str),
}
FIELDS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _BERT),
    "distilbert": _DISTILBERT,
    "modernbert": _MODERNBERT,
}
# Arrays that both servers look for: of the encoder alone, and of a classifier.
_WORDS = "embeddings.word_embeddings.weight"
_OF_ROBERTA = (f"roberta.{_WORDS}", "classifier.dense.weight", "classifier.out_proj.weight")
ARRAYS = {
    "bert": (_WORDS, (f"bert.{_WORDS}", "bert.pooler.dense.weight", "classifier.weight")),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), (_WORDS, _OF_ROBERTA)),
    "distilbert": (
        _WORDS,
        (f"distilbert.{_WORDS}", "pre_classifier.weight", "classifier.weight"),
    ),
    "modernbert": (
        "embeddings.tok_embeddings.weight",
        ("model.embeddings.tok_embeddings.weight", "head.dense.weight", "classifier.bias"),
    ),
}


def _json(path):
    return json.loads(path.read_bytes())


def _check_config(folder, family):
    config = _json(folder / "config.json")
    wrong = [name for name, type_ in FIELDS[family].items() if type(config.get(name)) is not type_]
    assert not wrong and (folder / "tokenizer.json").exists()
    return config


@pytest.mark.parametrize("family", FIELDS)
def test_vectors(vocabulary, tmp_path, family):
    modules = (VectorModule(width=5, activation="tanh"),)
    model = with_vectors(
        family_model(vocabulary, family, head_types.ENCODER),
        Embedding(pooling="mean", modules=modules, normalize=True, passage_length=32),
    )
    write_hugging_face(model, tmp_path)
    config = _check_config(tmp_path, family)
    assert config["architectures"][0].endswith("Model")
    encoder, _ = ARRAYS[family]
    assert encoder in load_file(tmp_path / "model.safetensors")
    # vLLM and text-embeddings-inference compare the types as text.
    described = {each["type"]: each["path"] for each in _json(tmp_path / "modules.json")}
    names = ("Transformer", "Pooling", "Dense", "Normalize")
    assert list(described) == [f"sentence_transformers.models.{name}" for name in names]
    assert [*described.values()][1:3] == ["1_Pooling", "2_Dense"]
    pooling = _json(tmp_path / "1_Pooling/config.json")
    modes = ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_lasttoken")
    assert [pooling[mode] for mode in modes] == [False, True, False]
    dense = _json(tmp_path / "2_Dense/config.json")
    assert dense["activation_function"] == "torch.nn.modules.activation.Tanh" and dense["bias"]
    arrays = load_file(tmp_path / "2_Dense/model.safetensors")
    assert arrays["linear.weight"].shape == (dense["out_features"], dense["in_features"])
    assert arrays["linear.bias"].shape == (dense["out_features"],)
    assert _json(tmp_path / "sentence_bert_config.json")["max_seq_length"] == 32


@pytest.mark.parametrize("family", FIELDS)
def test_classifiers_and_rerankers(vocabulary, tmp_path, family):
    write_hugging_face(
        family_model(vocabulary, family, head_types.SEQUENCE_CLASSIFICATION), tmp_path
    )
    config = _check_config(tmp_path, family)
    # A name with this end makes it a classifier; one of a single class is a reranker.
    assert config["architectures"][0].endswith("ForSequenceClassification")
    assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert config["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    _, classifier = ARRAYS[family]
    assert not set(classifier) - load_file(tmp_path / "model.safetensors").keys()


def test_fields_that_llama_cpp_reads_and_transformers_does_not():
    """The published files have them."""
    spec = small_spec("modernbert")
    assert fields_of(spec, "test")["layer_norm_eps"] == spec.layer_norm_eps != 1e-5
    spec = small_spec("gpt2", causal=True)
    assert fields_of(spec, "test")["n_ctx"] == spec.max_position_embeddings
