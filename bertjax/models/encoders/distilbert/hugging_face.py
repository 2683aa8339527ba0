"""The names in transformers of DistilBERT: classes, settings, arrays (modeling_distilbert.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.distilbert.spec import DistilBertSpec
from bertjax.models.encoders.names import (
    WRITTEN_ACTIVATIONS,
    Entry,
    dense,
    norm,
    read_activation,
    with_prefix,
)

_CLASSES = {
    kinds.ENCODER: "DistilBertModel",
    kinds.MASKED_LM: "DistilBertForMaskedLM",
    kinds.SEQUENCE_CLASSIFICATION: "DistilBertForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "DistilBertForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "DistilBertForTokenClassification",
    kinds.QUESTION_ANSWERING: "DistilBertForQuestionAnswering",
}
# Fields of config.json -> those of the spec.
_SIZES = {
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
}
_RATES = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    fields = {ours: config[key] for key, ours in (_SIZES | _RATES).items() if key in config}
    return fields | {"hidden_act": read_activation(config, "activation")}


def _write_config(spec: DistilBertSpec) -> dict[str, Any]:
    if spec.causal:
        raise ValueError("transformers has no DistilBERT that reads left to right")
    return {
        **{key: getattr(spec, ours) for key, ours in (_SIZES | _RATES).items()},
        "activation": WRITTEN_ACTIVATIONS[spec.hidden_act],
        "sinusoidal_pos_embds": False,
    }


def _entries(spec: DistilBertSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    del kind
    width = (spec.hidden_size,)
    entries = {
        "distilbert": _encoder(spec),
        "masked_lm": _masked_lm(spec),
        "pre_classifier": dense("pre_classifier", "pre_classifier/dense", width, width),
        "classifier": dense("classifier", "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def _encoder(spec: DistilBertSpec) -> Iterator[Entry]:
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    heads, theirs = (spec.num_attention_heads, spec.head_width), "distilbert.embeddings"
    for their_name, our_name, rows in (
        ("word_embeddings", "token", spec.vocab_size),
        ("position_embeddings", "position", spec.position_rows),
    ):
        shape = (rows, *width)
        yield Entry(
            f"{theirs}.{their_name}.weight", shape, f"distilbert/embeddings/{our_name}", shape
        )
    yield from norm(f"{theirs}.LayerNorm", "distilbert/embeddings/norm", *width)
    for i in range(spec.num_hidden_layers):
        layer, here = f"distilbert.transformer.layer.{i}", f"distilbert/encoder/layer_{i}"
        for part, name in enumerate(("q_lin", "k_lin", "v_lin")):
            yield from dense(
                f"{layer}.attention.{name}", f"{here}/attention/qkv", width, heads, part
            )
        yield from dense(f"{layer}.attention.out_lin", f"{here}/attention/output", heads, width)
        yield from norm(f"{layer}.sa_layer_norm", f"{here}/attention_norm", *width)
        yield from dense(f"{layer}.ffn.lin1", f"{here}/intermediate", width, inner)
        yield from dense(f"{layer}.ffn.lin2", f"{here}/output", inner, width)
        yield from norm(f"{layer}.output_layer_norm", f"{here}/output_norm", *width)


def _masked_lm(spec: DistilBertSpec) -> Iterator[Entry]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    yield from dense("vocab_transform", "masked_lm/transform", width, width)
    yield from norm("vocab_layer_norm", "masked_lm/norm", *width)
    yield Entry("vocab_projector.bias", rows, "masked_lm/bias", rows)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **dict.fromkeys(_SIZES, int),
        "pad_token_id": int | None,
        **dict.fromkeys(_RATES, float),
        "activation": str,
    },
    read_config=_read_config,
    write_config=_write_config,
    entries=_entries,
    prefixes={
        "distilbert": ("distilbert.",),
        "masked_lm": ("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
        "pre_classifier": ("pre_classifier.",),
        "classifier": ("classifier.",),
        "span": ("qa_outputs.",),
    },
    one_spelling=with_prefix("distilbert.", r"(embeddings|transformer)\."),
    bare="distilbert.",
    buffers=(r"distilbert\.embeddings\.position_ids",),
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)
