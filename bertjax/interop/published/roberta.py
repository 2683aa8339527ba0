"""The names in transformers of RoBERTa's classes, settings and arrays (modeling_roberta.py)."""

from collections.abc import Mapping
from typing import Any

from bertjax.interop.config_rows import Operation
from bertjax.interop.names import Names
from bertjax.interop.published.bert import CONFIG, LAYERS
from bertjax.models.encoders import head_types

_KINDS = {
    head_types.ENCODER: "Model",
    head_types.MASKED_LM: "ForMaskedLM",
    head_types.CAUSAL_LM: "ForCausalLM",
    head_types.SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
    head_types.MULTIPLE_CHOICE: "ForMultipleChoice",
    head_types.TOKEN_CLASSIFICATION: "ForTokenClassification",
    head_types.QUESTION_ANSWERING: "ForQuestionAnswering",
}


def _longest(field: str, config: Mapping[str, Any]) -> int:
    """The longest sequence, of the rows of the table of positions, which config.json has."""
    return config[field] - config["pad_token_id"] - 1


_LONGEST = Operation(int, _longest, lambda spec: spec.position_rows)


def _names(class_prefix: str) -> Names:
    return Names(
        classes={head_type: class_prefix + ending for head_type, ending in _KINDS.items()},
        bare="roberta.",
        encoder=LAYERS,
        parts={
            "pooler": (("dense", "roberta.pooler.dense"),),
            "masked_lm": (
                ("transform", "lm_head.dense"),
                ("norm", "lm_head.layer_norm"),
                ("bias", "lm_head.bias"),
            ),
            "classifier_dense": (("dense", "classifier.dense"),),
            "classifier": (("", "classifier"),),
            ("classifier", head_types.SEQUENCE_CLASSIFICATION): (("", "classifier.out_proj"),),
            "span": (("", "qa_outputs"),),
        },
        copies={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        buffers=(r"roberta\.embeddings\.(position|token_type)_ids",),
        spellings=((r"^(?=(embeddings|encoder|pooler)\.)", "roberta."),),
        config=CONFIG._replace(
            rows=(
                *CONFIG.rows,
                ("pad_token_id", "pad_token_id"),  # positions are counted from it
                ("max_position_embeddings", "max_position_embeddings", _LONGEST),
            ),
            absent={"max_position_embeddings": 512, "pad_token_id": 1},
            roles=("pad", "bos", "eos"),
        ),
    )


ROBERTA, XLM_ROBERTA, CAMEMBERT = map(_names, ("Roberta", "XLMRoberta", "Camembert"))
