"""The names in transformers of DeBERTa-v2's and v3's classes, settings and arrays.

They are those of modeling_deberta_v2.py. The discriminator of v3 has no class there; its class and
names are those of microsoft/DeBERTa (replaced_token_detection_model.py) and of its published
weights, whose encoder transformers reads.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.interop.config_rows import (
    ACTIVATION,
    ACTIVATIONS,
    WRITTEN_ACTIVATIONS,
    ConfigRows,
    Operation,
    check_only,
    chosen,
    same,
)
from bertjax.interop.names import Names, outputs_first
from bertjax.interop.published.bert import LAYERS
from bertjax.models.encoders import head_types

_TERMS = ["p2c", "c2p"]
_OTHERS = {
    "relative_attention": False,
    "position_biased_input": True,
    "share_att_key": False,
    "norm_rel_ebd": "none",
}
_WANTED = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "type_vocab_size": 0,
    "conv_groups": 1,
    "pooler_hidden_act": "gelu",
}


def _check_terms(field: str, config: Mapping[str, Any]) -> None:
    found = config[field]
    names = found.lower().split("|") if isinstance(found, str) else found
    check_only({*map(str.strip, names)} == {*_TERMS}, field, found, repr(_TERMS))


def _check_width(field: str, config: Mapping[str, Any]) -> None:
    fits = config[field] == config["hidden_size"]
    check_only(fits, field, config[field], "that of hidden_size")


def _check_head_width(field: str, config: Mapping[str, Any]) -> None:
    fits = config[field] * config["num_attention_heads"] == config["hidden_size"]
    check_only(fits, field, config[field], "hidden_size / num_attention_heads")


def _farthest(field: str, config: Mapping[str, Any]) -> int:
    """Below 1, the longest sequence."""
    return max(0, config[field])


def _without_conv_act(field: str, config: Mapping[str, Any]) -> str | None:
    """The activation of a convolution that names none."""
    return "tanh" if config[field] else None


_TANH = {"tanh": "tanh"}
_CONV_ACT = chosen("conv_act", ACTIVATIONS | _TANH, WRITTEN_ACTIVATIONS | _TANH)
_WIDTH = Operation(int, _check_width)
DEBERTA_V2 = Names(
    classes={
        head_types.ENCODER: "DebertaV2Model",
        head_types.MASKED_LM: "DebertaV2ForMaskedLM",
        head_types.REPLACED_TOKENS: "ReplacedTokenDetectionModel",
        head_types.SEQUENCE_CLASSIFICATION: "DebertaV2ForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "DebertaV2ForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "DebertaV2ForTokenClassification",
        head_types.QUESTION_ANSWERING: "DebertaV2ForQuestionAnswering",
    },
    bare="deberta.",
    encoder=(
        *((path, name.replace("|value)", "|value)_proj")) for path, name in LAYERS),
        (
            "encoder/layer_0/convolution/kernel",
            "encoder.conv.conv.weight",
            lambda shape, _: outputs_first(shape, 2),
        ),
        ("encoder/layer_0/convolution/bias", "encoder.conv.conv.bias"),
        ("encoder/layer_0/convolution_norm", "encoder.conv.LayerNorm"),
        ("encoder/distance", "encoder.rel_embeddings.weight"),
        ("encoder/distance_norm", "encoder.LayerNorm"),
    ),
    parts={
        "masked_lm": (
            ("transform", "cls.predictions.transform.dense"),
            ("norm", "cls.predictions.transform.LayerNorm"),
            ("bias", "cls.predictions.bias"),
        ),
        "replaced_tokens": (
            ("norm", "mask_predictions.LayerNorm"),
            ("dense", "mask_predictions.dense"),
            ("output", "mask_predictions.classifier"),
        ),
        "pooler": (("dense", "pooler.dense"),),
        "classifier": (("", "classifier"),),
        "span": (("", "qa_outputs"),),
    },
    copies={
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    # Only the authors' decoder of masked tokens reads the table of positions.
    buffers=(r"deberta\.embeddings\.position_(ids|embeddings\.weight)",),
    spellings=(
        (r"^(?=(embeddings|encoder)\.)", "deberta."),
        (r"^lm_predictions\.lm_head\.(?=dense|LayerNorm)", "cls.predictions.transform."),
        (r"^lm_predictions\.lm_head\.", "cls.predictions."),  # both with legacy=False
        (r"^mask_predictions\.classifer\.", "mask_predictions.classifier."),
    ),
    config=ConfigRows(
        rows=(
            *same(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")),
            *same(("intermediate_size", "max_position_embeddings", "position_buckets")),
            *same(("hidden_dropout_prob", "attention_probs_dropout_prob")),
            *same(("initializer_range", "layer_norm_eps")),
            ("hidden_act", "hidden_act", ACTIVATION),
            ("conv_kernel_size", "conv_kernel_size"),
            ("conv_kernel_size", "conv_act", Operation(read=_without_conv_act)),
            ("conv_act", "conv_act", _CONV_ACT),
            (
                "max_relative_positions",
                "max_relative_positions",
                Operation(int, _farthest, lambda spec: spec.max_relative_positions or -1),
            ),
            ("pos_att_type", "", Operation(str | list[str], _check_terms, lambda _: _TERMS)),
            ("embedding_size", "", _WIDTH),
            ("pooler_hidden_size", "", _WIDTH._replace(write=lambda spec: spec.hidden_size)),
            ("attention_head_size", "", Operation(int, _check_head_width)),
        ),
        absent={
            **{"hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24},
            **{"intermediate_size": 6144, "position_buckets": -1, "pos_att_type": ""},
            **_OTHERS,
        },
        wanted=_WANTED,
        written={**_WANTED, "legacy": True, "pooler_dropout": 0},
        roles=("pad",),
        title="DeBERTa-v2",
    ),
    elsewhere=(head_types.REPLACED_TOKENS,),
)
