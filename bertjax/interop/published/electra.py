"""The names in transformers of ELECTRA's classes, settings and arrays (modeling_electra.py)."""

from bertjax.interop.config_rows import same
from bertjax.interop.names import Names
from bertjax.interop.published.bert import CONFIG, LAYERS
from bertjax.models.encoders import head_types

_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
ELECTRA = Names(
    classes={
        head_types.ENCODER: "ElectraModel",
        head_types.REPLACED_TOKENS: "ElectraForPreTraining",
        head_types.MASKED_LM: "ElectraForMaskedLM",
        head_types.CAUSAL_LM: "ElectraForCausalLM",
        head_types.SEQUENCE_CLASSIFICATION: "ElectraForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "ElectraForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "ElectraForTokenClassification",
        head_types.QUESTION_ANSWERING: "ElectraForQuestionAnswering",
    },
    bare="electra.",
    encoder=(*LAYERS, ("projection", "embeddings_project")),
    parts={
        "replaced_tokens": (
            ("dense", "discriminator_predictions.dense"),
            ("output", "discriminator_predictions.dense_prediction"),
        ),
        "masked_lm": (
            ("transform", "generator_predictions.dense"),
            ("norm", "generator_predictions.LayerNorm"),
            ("bias", "generator_lm_head.bias"),
        ),
        "summary": (("dense", "sequence_summary.summary"),),
        "classifier_dense": (("dense", "classifier.dense"),),
        "classifier": (("", "classifier"),),
        ("classifier", head_types.SEQUENCE_CLASSIFICATION): (("", "classifier.out_proj"),),
        "span": (("", "qa_outputs"),),
    },
    copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    buffers=(r"electra\.embeddings\.(position|token_type)_ids",),
    spellings=((r"^(?=(embeddings|embeddings_project|encoder)\.)", "electra."),),
    config=CONFIG._replace(
        rows=(*CONFIG.rows, *same(("embedding_size",))),
        wanted={**CONFIG.wanted, **_SUMMARY},
        written={**CONFIG.written, **_SUMMARY},
    ),
)
