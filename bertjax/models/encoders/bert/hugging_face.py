"""The names in transformers of BERT's classes, settings and arrays (modeling_bert.py)."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.spec import BertArchitecture, BertSpec
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.names import (
    WRITTEN_ACTIVATIONS,
    Entry,
    check_wanted,
    dense,
    norm,
    read_activation,
)

_CLASSES = {
    kinds.ENCODER: "BertModel",
    kinds.PRE_TRAINING: "BertForPreTraining",
    kinds.MASKED_LM: "BertForMaskedLM",
    kinds.CAUSAL_LM: "BertLMHeadModel",
    kinds.SEQUENCE_CLASSIFICATION: "BertForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "BertForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "BertForTokenClassification",
    kinds.QUESTION_ANSWERING: "BertForQuestionAnswering",
}
_SIZES = tuple(
    field.name
    for field in dataclasses.fields(BertArchitecture)
    if field.name not in ("hidden_act", "causal")
)
# With another value in one of these fields of config.json, the model computes something else.
_WANTED = {"position_embedding_type": "absolute", "add_cross_attention": False}


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """See `HuggingFace`."""
    check_wanted(config, _WANTED)
    hidden_act = read_activation(config, "hidden_act")
    sizes = {name: config[name] for name in _SIZES if name in config}
    return sizes | {"hidden_act": hidden_act, "causal": bool(config.get("is_decoder"))}


def write_config(spec: BertSpec) -> dict[str, Any]:
    """See `HuggingFace`."""
    config = {
        **{name: getattr(spec, name) for name in _SIZES},
        "hidden_act": WRITTEN_ACTIVATIONS[spec.hidden_act],
        "classifier_dropout": None,
        "position_embedding_type": "absolute",
    }
    return config | ({"is_decoder": True} if spec.causal else {})


def _entries(spec: BertSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    del kind
    width = (spec.hidden_size,)
    entries = {
        "bert": encoder_entries(spec, "bert", "bert"),
        "pooler": dense("bert.pooler.dense", "pooler/dense", width, width),
        "masked_lm": _masked_lm(spec),
        "next_sentence_head": dense("cls.seq_relationship", "next_sentence_head", width, (2,)),
        "classifier": dense("classifier", "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def encoder_entries(spec: BertSpec, theirs: str, ours: str) -> Iterator[Entry]:
    """The arrays of an encoder of BERT's architecture.

    Args:
      theirs, ours: the prefix of its arrays' names in transformers, and in our parameters.
    """
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    embeddings, heads = (spec.embedding_size,), (spec.num_attention_heads, spec.head_width)
    for their_name, our_name, rows in (
        ("word_embeddings", "token", spec.vocab_size),
        ("position_embeddings", "position", spec.position_rows),
        ("token_type_embeddings", "segment", spec.type_vocab_size),
    ):
        shape = (rows, *embeddings)
        name = f"{theirs}.embeddings.{their_name}.weight"
        yield Entry(name, shape, f"{ours}/embeddings/{our_name}", shape)
    yield from norm(f"{theirs}.embeddings.LayerNorm", f"{ours}/embeddings/norm", *embeddings)
    for i in range(spec.num_hidden_layers):
        layer, here = f"{theirs}.encoder.layer.{i}", f"{ours}/encoder/layer_{i}"
        for part, name in enumerate(("query", "key", "value")):
            name = f"{layer}.attention.self.{name}"
            yield from dense(name, f"{here}/attention/qkv", width, heads, part)
        yield from dense(
            f"{layer}.attention.output.dense", f"{here}/attention/output", heads, width
        )
        yield from norm(f"{layer}.attention.output.LayerNorm", f"{here}/attention_norm", *width)
        yield from dense(f"{layer}.intermediate.dense", f"{here}/intermediate", width, inner)
        yield from dense(f"{layer}.output.dense", f"{here}/output", inner, width)
        yield from norm(f"{layer}.output.LayerNorm", f"{here}/output_norm", *width)


def _masked_lm(spec: BertSpec) -> Iterator[Entry]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    yield from dense("cls.predictions.transform.dense", "masked_lm/transform", width, width)
    yield from norm("cls.predictions.transform.LayerNorm", "masked_lm/norm", *width)
    yield Entry("cls.predictions.bias", rows, "masked_lm/bias", rows)


def _one_spelling(name: str) -> str:
    """The name with the prefix "bert.", and with weight and bias for gamma and beta.

    BertModel alone is saved without the prefix; gamma and beta are names from before 2019.
    """
    if re.match(r"(embeddings|encoder|pooler)\.", name):
        name = f"bert.{name}"
    name = re.sub(r"\.LayerNorm\.gamma$", ".LayerNorm.weight", name)
    return re.sub(r"\.LayerNorm\.beta$", ".LayerNorm.bias", name)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **{f.name: f.type for f in dataclasses.fields(BertArchitecture) if f.name in _SIZES},
        **{"hidden_act": str, "position_embedding_type": str},
        **{"is_decoder": bool, "add_cross_attention": bool, "pad_token_id": int | None},
    },
    read_config=read_config,
    write_config=write_config,
    entries=_entries,
    prefixes={
        "bert": ("bert.",),
        "pooler": ("bert.pooler.",),
        "masked_lm": ("cls.predictions.",),
        "next_sentence_head": ("cls.seq_relationship.",),
        "classifier": ("classifier.",),
        "span": ("qa_outputs.",),
    },
    one_spelling=_one_spelling,
    bare="bert.",
    buffers=(r"bert\.embeddings\.(position|token_type)_ids",),
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
