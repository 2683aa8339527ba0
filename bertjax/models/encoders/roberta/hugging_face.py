"""The names in transformers of RoBERTa's classes, settings and arrays (modeling_roberta.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert import hugging_face as bert
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.names import Entry, dense, norm, with_prefix
from bertjax.models.encoders.roberta.spec import RobertaSpec

_KINDS = {
    kinds.ENCODER: "Model",
    kinds.MASKED_LM: "ForMaskedLM",
    kinds.CAUSAL_LM: "ForCausalLM",
    kinds.SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "ForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "ForTokenClassification",
    kinds.QUESTION_ANSWERING: "ForQuestionAnswering",
}


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    fields = bert.read_config(config)
    pad = config.get("pad_token_id", RobertaSpec.pad_token_id)
    rows = fields.get("max_position_embeddings", 512)
    return fields | {"pad_token_id": pad, "max_position_embeddings": rows - pad - 1}


def _write_config(spec: RobertaSpec) -> dict[str, Any]:
    rows = {"max_position_embeddings": spec.position_rows, "pad_token_id": spec.pad_token_id}
    return bert.write_config(spec) | rows


def _entries(spec: RobertaSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    width, name = (spec.hidden_size,), spec.encoder
    is_sequence = kind == kinds.SEQUENCE_CLASSIFICATION
    classifier = "classifier.out_proj" if is_sequence else "classifier"
    entries = {
        name: bert.encoder_entries(spec, "roberta", name),
        "pooler": dense("roberta.pooler.dense", "pooler/dense", width, width),
        "masked_lm": _masked_lm(spec),
        "classifier_dense": dense("classifier.dense", "classifier_dense/dense", width, width),
        "classifier": dense(classifier, "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def _masked_lm(spec: RobertaSpec) -> Iterator[Entry]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    yield from dense("lm_head.dense", "masked_lm/transform", width, width)
    yield from norm("lm_head.layer_norm", "masked_lm/norm", *width)
    yield Entry("lm_head.bias", rows, "masked_lm/bias", rows)


def names_of(class_prefix: str, name: str) -> HuggingFace:
    """The names of one of the models of this architecture.

    Args:
      class_prefix: the prefix of the names of its classes.
      name: the name of the family.
    """
    return HuggingFace(
        classes={kind: class_prefix + ending for kind, ending in _KINDS.items()},
        fields={
            **bert.HUGGING_FACE.fields,
            "pad_token_id": int,  # positions are counted from it
            **dict.fromkeys(("bos_token_id", "eos_token_id"), int | None),
        },
        read_config=_read_config,
        write_config=_write_config,
        entries=_entries,
        prefixes={
            name: ("roberta.",),
            "pooler": ("roberta.pooler.",),
            "masked_lm": ("lm_head.",),
            "classifier_dense": ("classifier.dense.",),
            "classifier": ("classifier.",),
            "span": ("qa_outputs.",),
        },
        one_spelling=with_prefix("roberta.", r"(embeddings|encoder|pooler)\."),
        bare="roberta.",
        buffers=(r"roberta\.embeddings\.(position|token_type)_ids",),
        copies={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
    )
