"""The names of NeoBERT's classes, settings and arrays in its own code on the Hugging Face hub.

transformers runs this code (model.py of chandar-lab/NeoBERT) with `trust_remote_code`.
"""

from collections.abc import Mapping
from math import ceil
from typing import Any

from bertjax.interop.config_rows import (
    ConfigRows,
    Operation,
    check_only,
    check_value,
    only_written,
    same,
)
from bertjax.interop.names import Names, planes_by_head
from bertjax.interop.published.eurobert import check_head_width
from bertjax.models.encoders import head_types

_CLASSES = {
    head_types.ENCODER: "NeoBERT",
    head_types.MASKED_LM: "NeoBERTLMHead",
    head_types.SEQUENCE_CLASSIFICATION: "NeoBERTForSequenceClassification",
}
_AUTO = {
    "AutoConfig": "NeoBERTConfig",
    "AutoModel": _CLASSES[head_types.ENCODER],
    "AutoModelForMaskedLM": _CLASSES[head_types.MASKED_LM],
    "AutoModelForSequenceClassification": _CLASSES[head_types.SEQUENCE_CLASSIFICATION],
}


def _width(field: str, config: Mapping[str, Any]) -> int:
    """The inner width, of the one that an ungated feed-forward of as many weights would have."""
    return 8 * ceil(2 * config[field] // 3 / 8)


def _ungated(spec: Any) -> int:
    if spec.intermediate_size % 8:
        raise ValueError(
            f"intermediate_size={spec.intermediate_size}: must be a multiple of 8 in NeoBERT's code"
        )
    return spec.intermediate_size * 3 // 2


def _check_range(field: str, config: Mapping[str, Any]) -> None:
    expected = config["decoder_init_range"]
    fits = config[field] == expected
    check_only(fits, field, config[field], f"that of decoder_init_range, {expected},")


def _activation(field: str, config: Mapping[str, Any]) -> None:
    check_only(config[field].lower() == "swiglu", field, config[field], "'SwiGLU'")


NEOBERT = Names(
    classes=_CLASSES,
    bare="model.",
    encoder=(
        ("embeddings/token", "encoder.weight"),
        ("encoder/layer_{i}/attention_norm", "transformer_encoder.{i}.attention_norm"),
        ("encoder/layer_{i}/attention/qkv", "transformer_encoder.{i}.qkv", planes_by_head),
        ("encoder/layer_{i}/attention/output", "transformer_encoder.{i}.wo"),
        ("encoder/layer_{i}/output_norm", "transformer_encoder.{i}.ffn_norm"),
        ("encoder/layer_{i}/intermediate", "transformer_encoder.{i}.ffn.w12"),
        ("encoder/layer_{i}/output", "transformer_encoder.{i}.ffn.w3"),
        ("final_norm", "layer_norm"),
    ),
    parts={
        "masked_lm": (("kernel", "decoder.weight"), ("bias", "decoder.bias")),  # [V, D] on both
        "classifier_dense": (("dense", "dense"),),
        "classifier": (("", "classifier"),),
    },
    spellings=((r"^(?=(encoder|transformer_encoder|layer_norm)\.)", "model."),),
    config=ConfigRows(
        rows=(
            *same(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")),
            ("intermediate_size", "intermediate_size", Operation(int, _width, _ungated)),
            ("max_length", "max_position_embeddings"),
            ("norm_eps", "layer_norm_eps"),
            ("dropout", "hidden_dropout_prob"),  # of the code that trained it
            ("classifier_dropout", "hidden_dropout_prob", only_written("hidden_dropout_prob")),
            ("decoder_init_range", "initializer_range"),
            (
                "embedding_init_range",
                "initializer_range",
                only_written("initializer_range", float)._replace(read=_check_range),
            ),
            (
                "hidden_act",
                "hidden_act",
                Operation(
                    str,
                    _activation,
                    lambda spec: check_value(spec, "hidden_act", "silu", "NeoBERT"),
                ),
            ),
            ("dim_head", "", Operation(int | None, check_head_width)),
        ),
        absent={
            **{"hidden_size": 768, "num_attention_heads": 12, "decoder_init_range": 0.02},
            "norm_eps": 1e-6,
        },
        wanted={"rms_norm": True, "rope": True, "ngpt": False},
        written={
            "tie_word_embeddings": False,
            "auto_map": {auto: f"chandar-lab/NeoBERT--model.{own}" for auto, own in _AUTO.items()},
        },
        lost=("attention_probs_dropout_prob",),
        roles=("pad",),
        title="NeoBERT",
    ),
)
