"""The names in transformers of EuroBERT: classes, settings, arrays (modeling_eurobert.py)."""

from collections.abc import Mapping
from typing import Any

from bertjax.base.validation import if_given
from bertjax.interop.config_rows import (
    ACTIVATION,
    ConfigRows,
    Operation,
    check_only,
    check_wanted,
    chosen,
    same,
)
from bertjax.interop.names import Names
from bertjax.models.encoders import head_types

_WANTED = {
    **{"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    **{"is_decoder": False, "is_causal": False},
}
_ROPE: Any = if_given(rope_theta=float, rope_type=str)
_POOLINGS = {"bos": "cls", "mean": "mean", "late": "late"}


def _theta(field: str, config: Mapping[str, Any]) -> float:
    """That of `rope_parameters`, or of files of transformers 4, next to `rope_scaling`."""
    rope = config[field] or {}
    check_wanted(rope, {"rope_type": "default"})
    scaling = config.get("rope_scaling")
    check_only(not scaling, "rope_scaling", scaling, "rotary positions without scaling")
    if (theta := rope.get("rope_theta", config.get("rope_theta"))) is None:
        raise ValueError(
            "rope_theta is missing: the published code takes 250000, and transformers 10000: write "
            "there what the model was trained with"
        )
    return theta


def _rope(spec: Any) -> dict[str, Any]:
    return {"rope_theta": spec.global_rope_theta, "rope_type": "default"}


def _check_old_pooling(field: str, config: Mapping[str, Any]) -> None:
    if config[field] not in (None, config["classifier_pooling"]):
        raise ValueError(
            f"{field}={config[field]!r}, which transformers ignores: write it there as "
            "'classifier_pooling'"
        )


def check_head_width(field: str, config: Mapping[str, Any]) -> None:
    """Raises ValueError for heads that are not D / N wide; null: they are."""
    width, heads, expected = config[field], config["num_attention_heads"], config["hidden_size"]
    fits = width is None or width * heads == expected
    check_only(fits, field, width, "hidden_size / num_attention_heads")


EUROBERT = Names(
    classes={
        head_types.ENCODER: "EuroBertModel",
        head_types.MASKED_LM: "EuroBertForMaskedLM",
        head_types.SEQUENCE_CLASSIFICATION: "EuroBertForSequenceClassification",
        head_types.TOKEN_CLASSIFICATION: "EuroBertForTokenClassification",
    },
    bare="model.",
    encoder=(
        ("embeddings/token", "embed_tokens.weight"),
        ("encoder/layer_{i}/attention_norm", "layers.{i}.input_layernorm"),
        ("encoder/layer_{i}/attention/qkv", "layers.{i}.self_attn.(q|k|v)_proj"),
        # With fewer heads of keys and values than of queries:
        ("encoder/layer_{i}/attention/query", "layers.{i}.self_attn.q_proj"),
        ("encoder/layer_{i}/attention/key_value", "layers.{i}.self_attn.(k|v)_proj"),
        ("encoder/layer_{i}/attention/output", "layers.{i}.self_attn.o_proj"),
        ("encoder/layer_{i}/output_norm", "layers.{i}.post_attention_layernorm"),
        ("encoder/layer_{i}/intermediate", "layers.{i}.mlp.(gate|up)_proj"),
        ("encoder/layer_{i}/output", "layers.{i}.mlp.down_proj"),
        ("final_norm", "norm"),
    ),
    parts={
        "masked_lm": (("kernel", "lm_head.weight"),),  # [V, D] on both sides
        "classifier_dense": (("dense", "dense"),),
        "classifier": (("", "classifier"),),
    },
    buffers=(r"model\.rotary_emb\..*",),
    spellings=((r"^(?=(embed_tokens|layers|norm|rotary_emb)\.)", "model."),),
    config=ConfigRows(
        rows=(
            *same(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")),
            *same(("intermediate_size", "max_position_embeddings", "initializer_range")),
            (
                "num_key_value_heads",
                "num_key_value_heads",
                Operation(
                    int | None,
                    lambda field, config: config[field],
                    lambda spec: spec.num_key_value_heads or None,
                ),
            ),
            ("rms_norm_eps", "layer_norm_eps"),
            ("attention_dropout", "attention_probs_dropout_prob"),
            ("hidden_dropout", "hidden_dropout_prob"),
            ("hidden_act", "hidden_act", ACTIVATION),
            (
                "classifier_pooling",
                "classifier_pooling",
                chosen("classifier_pooling", _POOLINGS, {n: name for name, n in _POOLINGS.items()}),
            ),
            ("clf_pooling", "", Operation(str | None, _check_old_pooling)),
            ("head_dim", "", Operation(int | None, check_head_width)),
            ("rope_theta", "", Operation(float)),
            ("rope_parameters", "global_rope_theta", Operation(_ROPE | None, _theta, _rope)),
        ),
        absent={
            **{"hidden_size": 768, "num_attention_heads": 12, "classifier_pooling": "late"},
            "rope_parameters": None,
        },
        wanted=_WANTED,
        written=_WANTED,
        roles=("pad", "bos", "eos", "mask"),
        title="EuroBERT",
    ),
)
