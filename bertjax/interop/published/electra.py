"""The names in transformers of ELECTRA's classes, settings and arrays (modeling_electra.py)."""

from bertjax.interop.config_rows import same
from bertjax.interop.names import Names
from bertjax.interop.published.bert import CONFIG, LAYERS
from bertjax.models.encoders import kinds

_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
ELECTRA = Names(
    classes={
        kinds.ENCODER: "ElectraModel",
        kinds.REPLACED_TOKENS: "ElectraForPreTraining",
        kinds.MASKED_LM: "ElectraForMaskedLM",
        kinds.CAUSAL_LM: "ElectraForCausalLM",
        kinds.SEQUENCE_CLASSIFICATION: "ElectraForSequenceClassification",
        kinds.MULTIPLE_CHOICE: "ElectraForMultipleChoice",
        kinds.TOKEN_CLASSIFICATION: "ElectraForTokenClassification",
        kinds.QUESTION_ANSWERING: "ElectraForQuestionAnswering",
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
        ("classifier", kinds.SEQUENCE_CLASSIFICATION): (("", "classifier.out_proj"),),
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
