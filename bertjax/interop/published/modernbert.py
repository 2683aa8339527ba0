"""The names in transformers of ModernBERT's classes, settings and arrays."""

from collections.abc import Mapping
from typing import Any

from bertjax.base.validation import if_given
from bertjax.interop.config_rows import (
    ACTIVATION,
    ACTIVATIONS,
    ONLY_READ,
    ConfigRows,
    Operation,
    check_only,
    check_wanted,
    only_written,
    same,
)
from bertjax.interop.names import Names
from bertjax.models.encoders import head_types

_WANTED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
}
_LAYER_TYPES = {True: "full_attention", False: "sliding_attention"}  # by whether it is global
_ROPE: Any = if_given(rope_theta=float, rope_type=str)
_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
_HEAD = (("dense", "head.dense"), ("norm", "head.norm"))


def _period(field: str, config: Mapping[str, Any]) -> int | None:
    """The n of a list of layers in which the first is global, and every n-th after it."""
    if not (layer_types := config[field]):
        return None
    for every in range(1, len(layer_types) + 1):
        if layer_types == [_LAYER_TYPES[i % every == 0] for i in range(len(layer_types))]:
            return every
    raise ValueError(
        f"layer_types={layer_types}: only a full_attention layer at the beginning and every n "
        "layers after it, with sliding_attention between them, can be read"
    )


def _layer_types(spec: Any) -> list[str]:
    return [_LAYER_TYPES[spec.is_global(i)] for i in range(spec.num_hidden_layers)]


def _even(spec: Any) -> int:
    if spec.local_attention % 2:
        raise ValueError(f"local_attention={spec.local_attention}: must be even in transformers")
    return spec.local_attention


def _as_in_layers(field: str, config: Mapping[str, Any]) -> str:
    of_layers, of_heads = config["hidden_activation"], config[field]
    fits = ACTIVATIONS.get(of_heads) == ACTIVATIONS[of_layers]
    check_only(fits, field, of_heads, f"that of the layers, {of_layers!r},")
    return ACTIVATIONS[of_layers]


def _theta(layers: str, config: Mapping[str, Any]) -> float | None:
    """The theta of a type of layers in `rope_parameters`, if it is there."""
    ropes = config.get("rope_parameters") or {}
    for rope in ropes.values():
        check_wanted(rope, {"rope_type": "default"})
    return ropes.get(layers, {}).get("rope_theta")


def _local_theta(field: str, config: Mapping[str, Any]) -> float:
    """In files of transformers 4, null: as in the global layers."""
    if config[field] is not None:
        return config[field]
    return _theta("full_attention", config) or config["global_rope_theta"]


def _ropes(spec: Any) -> dict[str, Any]:
    return {
        layers: {"rope_theta": getattr(spec, theta), "rope_type": "default"}
        for layers, theta in _THETAS.items()
    }


def _rope(layers: str) -> Operation:
    """Of the theta of a type of layers; the rows of both write the same."""
    return Operation(dict[str, _ROPE] | None, lambda _, config: _theta(layers, config), _ropes)


_LIST = Operation(list[str] | None, _period, _layer_types)
_WINDOW = ONLY_READ._replace(type=int, write=_even)
_LOCAL = Operation(float | None, _local_theta, lambda spec: spec.local_rope_theta)


MODERNBERT = Names(
    classes={
        head_types.ENCODER: "ModernBertModel",
        head_types.MASKED_LM: "ModernBertForMaskedLM",
        head_types.SEQUENCE_CLASSIFICATION: "ModernBertForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "ModernBertForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "ModernBertForTokenClassification",
        head_types.QUESTION_ANSWERING: "ModernBertForQuestionAnswering",
    },
    bare="model.",
    encoder=(
        ("embeddings/token", "embeddings.tok_embeddings.weight"),
        # Learned positions have no counterpart in transformers.
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        ("embeddings/norm", "embeddings.norm"),
        ("encoder/layer_{i}/attention/qkv", "layers.{i}.attn.Wqkv"),
        ("encoder/layer_{i}/attention/output", "layers.{i}.attn.Wo"),
        ("encoder/layer_{i}/intermediate", "layers.{i}.mlp.Wi"),
        ("encoder/layer_{i}/output", "layers.{i}.mlp.Wo"),
        ("encoder/layer_{i}/attention_norm", "layers.{i}.attn_norm"),
        ("encoder/layer_{i}/output_norm", "layers.{i}.mlp_norm"),
        ("final_norm", "final_norm"),
    ),
    parts={
        "masked_lm": (
            ("transform", "head.dense"),
            ("norm", "head.norm"),
            ("bias", "decoder.bias"),
        ),
        "pooler": _HEAD,
        "token_head": _HEAD,
        "classifier": (("", "classifier"),),
        "span": (("", "classifier"),),
    },
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    spellings=((r"^(?=(embeddings|layers|final_norm)\.)", "model."),),
    config=ConfigRows(
        rows=(
            *same(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")),
            *same(("intermediate_size", "max_position_embeddings", "initializer_range")),
            ("norm_eps", "layer_norm_eps"),
            ("layer_norm_eps", "layer_norm_eps", only_written("layer_norm_eps")),  # for llama.cpp
            ("embedding_dropout", "hidden_dropout_prob"),
            ("mlp_dropout", "hidden_dropout_prob", only_written("hidden_dropout_prob")),
            ("classifier_dropout", "hidden_dropout_prob", only_written("hidden_dropout_prob")),
            ("attention_dropout", "attention_probs_dropout_prob"),
            ("hidden_activation", "hidden_act", ACTIVATION),
            ("classifier_activation", "hidden_act", ACTIVATION._replace(read=_as_in_layers)),
            *same(("classifier_pooling", "global_attn_every_n_layers", "global_rope_theta")),
            ("layer_types", "global_attn_every_n_layers", _LIST),
            ("local_attention", "local_attention", _WINDOW),
            ("local_rope_theta", "local_rope_theta", _LOCAL),
            *(("rope_parameters", theta, _rope(layers)) for layers, theta in _THETAS.items()),
        ),
        absent={"hidden_activation": "gelu", "global_rope_theta": 160_000.0},
        wanted=_WANTED,
        written={**_WANTED, "initializer_cutoff_factor": 2.0},  # text-embeddings-inference needs it
        roles=("pad", "cls", "sep", "bos", "eos"),
        title="ModernBERT",
    ),
)
