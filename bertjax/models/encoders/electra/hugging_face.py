"""The names in transformers of ELECTRA's classes, settings and arrays (modeling_electra.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert import hugging_face as bert
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.electra.spec import ElectraSpec
from bertjax.models.encoders.names import Entry, check_wanted, dense, norm, with_prefix

_CLASSES = {
    kinds.ENCODER: "ElectraModel",
    kinds.REPLACED_TOKENS: "ElectraForPreTraining",
    kinds.MASKED_LM: "ElectraForMaskedLM",
    kinds.CAUSAL_LM: "ElectraForCausalLM",
    kinds.SEQUENCE_CLASSIFICATION: "ElectraForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "ElectraForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "ElectraForTokenClassification",
    kinds.QUESTION_ANSWERING: "ElectraForQuestionAnswering",
}
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    check_wanted(config, _SUMMARY)
    return bert.read_config(config) | {
        "embedding_size": config.get("embedding_size", ElectraSpec.embedding_size)
    }


def _write_config(spec: ElectraSpec) -> dict[str, Any]:
    return bert.write_config(spec) | _SUMMARY | {"embedding_size": spec.embedding_size}


def _entries(spec: ElectraSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    width = (spec.hidden_size,)
    is_sequence = kind == kinds.SEQUENCE_CLASSIFICATION
    classifier = "classifier.out_proj" if is_sequence else "classifier"
    entries = {
        "electra": _encoder(spec),
        "replaced_tokens": _replaced_tokens(width),
        "masked_lm": _masked_lm(spec),
        "summary": dense("sequence_summary.summary", "summary/dense", width, width),
        "classifier_dense": dense("classifier.dense", "classifier_dense/dense", width, width),
        "classifier": dense(classifier, "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def _encoder(spec: ElectraSpec) -> Iterator[Entry]:
    yield from bert.encoder_entries(spec, "electra", "electra")
    if spec.embedding_size != spec.hidden_size:
        sides = (spec.embedding_size,), (spec.hidden_size,)
        yield from dense("electra.embeddings_project", "electra/projection", *sides)


def _replaced_tokens(width: tuple[int, ...]) -> Iterator[Entry]:
    theirs = "discriminator_predictions"
    yield from dense(f"{theirs}.dense", "replaced_tokens/dense", width, width)
    yield from dense(f"{theirs}.dense_prediction", "replaced_tokens/output", width, (1,))


def _masked_lm(spec: ElectraSpec) -> Iterator[Entry]:
    narrow, rows = (spec.embedding_size,), (spec.vocab_size,)
    sides = (spec.hidden_size,), narrow
    yield from dense("generator_predictions.dense", "masked_lm/transform", *sides)
    yield from norm("generator_predictions.LayerNorm", "masked_lm/norm", *narrow)
    yield Entry("generator_lm_head.bias", rows, "masked_lm/bias", rows)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **bert.HUGGING_FACE.fields,
        **{name: type(value) for name, value in _SUMMARY.items()},
        "embedding_size": int,
    },
    read_config=_read_config,
    write_config=_write_config,
    entries=_entries,
    prefixes={
        "electra": ("electra.",),
        "replaced_tokens": ("discriminator_predictions.",),
        "masked_lm": ("generator_predictions.", "generator_lm_head."),
        "summary": ("sequence_summary.",),
        "classifier_dense": ("classifier.dense.",),
        "classifier": ("classifier.",),
        "span": ("qa_outputs.",),
    },
    one_spelling=with_prefix("electra.", r"(embeddings|embeddings_project|encoder)\."),
    bare="electra.",
    buffers=(r"electra\.embeddings\.(position|token_type)_ids",),
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
)
