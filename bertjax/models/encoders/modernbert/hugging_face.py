"""The names in transformers of ModernBERT's classes, settings and arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.base.validation import if_given
from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.modernbert.spec import BEFORE, GATED, LEARNED, ROTARY, ModernBertSpec
from bertjax.models.encoders.names import (
    ACTIVATIONS,
    WRITTEN_ACTIVATIONS,
    Entry,
    check_wanted,
    dense,
    norm,
    read_activation,
    with_prefix,
)

_CLASSES = {
    kinds.ENCODER: "ModernBertModel",
    kinds.MASKED_LM: "ModernBertForMaskedLM",
    kinds.SEQUENCE_CLASSIFICATION: "ModernBertForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "ModernBertForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "ModernBertForTokenClassification",
    kinds.QUESTION_ANSWERING: "ModernBertForQuestionAnswering",
}

# Field of config.json -> field of the spec.
_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "local_attention": "local_attention",
    "global_attn_every_n_layers": "global_attn_every_n_layers",
}
_NUMBERS = {
    "initializer_range": "initializer_range",
    "norm_eps": "layer_norm_eps",
    "embedding_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "global_rope_theta": "global_rope_theta",
    "local_rope_theta": "local_rope_theta",
}
# With another value in one of these fields of config.json, the model computes something else.
_WANTED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
}
_ROLES = ("pad", "cls", "sep", "bos", "eos")  # the special tokens whose ids a config.json has
_LAYER_TYPES = {True: "full_attention", False: "sliding_attention"}  # by whether it is global
_ROPE: Any = if_given(rope_theta=float, rope_type=str)
_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    check_wanted(config, _WANTED)
    hidden_act = read_activation(config, "hidden_activation")
    of_layers = config.get("hidden_activation", "gelu")
    of_heads = config.get("classifier_activation", of_layers)
    if ACTIVATIONS.get(of_heads) != hidden_act:
        raise ValueError(
            f"classifier_activation={of_heads!r}: only that of the layers, {of_layers!r}, can be "
            "read"
        )
    fields = {ours: config[key] for key, ours in (_SIZES | _NUMBERS).items() if key in config}
    fields["hidden_act"] = hidden_act
    fields["classifier_pooling"] = config.get("classifier_pooling", "cls")
    for layers, rope in (config.get("rope_parameters") or {}).items():
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type={rope['rope_type']!r}: only 'default' can be read")
        if layers in _THETAS and "rope_theta" in rope:
            fields[_THETAS[layers]] = rope["rope_theta"]
    if fields.get("local_rope_theta", 0) is None:  # transformers 4: as in the global layers
        theta = fields.get("global_rope_theta", ModernBertSpec.global_rope_theta)
        fields["local_rope_theta"] = theta
    if config.get("layer_types"):
        fields["global_attn_every_n_layers"] = _period(config["layer_types"])
    return fields


def _period(layer_types: list[str]) -> int:
    """The n of a list of layers in which the first is global, and every n-th after it."""
    for every in range(1, len(layer_types) + 1):
        if layer_types == [_LAYER_TYPES[i % every == 0] for i in range(len(layer_types))]:
            return every
    raise ValueError(
        f"layer_types={layer_types}: only a full_attention layer at the beginning and every n "
        "layers after it, with sliding_attention between them, can be read"
    )


def _write_config(spec: ModernBertSpec) -> dict[str, Any]:
    for field, wanted in (("positions", ROTARY), ("norm", BEFORE), ("feed_forward", GATED)):
        if getattr(spec, field) != wanted:
            raise ValueError(
                f"transformers has no ModernBERT with {field}={getattr(spec, field)!r}, only "
                f"{wanted!r}"
            )
    if spec.causal:
        raise ValueError("transformers has no ModernBERT that reads left to right")
    if spec.local_attention % 2:
        raise ValueError(f"local_attention={spec.local_attention}: must be even in transformers")
    names = _SIZES | _NUMBERS
    layers = [_LAYER_TYPES[spec.is_global(i)] for i in range(spec.num_hidden_layers)]
    return {
        **{key: getattr(spec, ours) for key, ours in names.items()},
        **_WANTED,
        "hidden_activation": WRITTEN_ACTIVATIONS[spec.hidden_act],
        "classifier_activation": WRITTEN_ACTIVATIONS[spec.hidden_act],
        "classifier_pooling": spec.classifier_pooling,
        "mlp_dropout": spec.hidden_dropout_prob,
        "classifier_dropout": spec.hidden_dropout_prob,
        "layer_types": layers,
        "rope_parameters": {
            layer: {"rope_theta": getattr(spec, theta), "rope_type": "default"}
            for layer, theta in _THETAS.items()
        },
    }


def _entries(spec: ModernBertSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    del kind
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    return {
        "modernbert": list(_encoder(spec)),
        "masked_lm": [
            *_head(spec, "masked_lm/head"),
            Entry("decoder.bias", rows, "masked_lm/bias", rows),
        ],
        "pooler": list(_head(spec, "pooler")),
        "token_head": list(_head(spec, "token_head")),
        "classifier": list(dense("classifier", "classifier", width, (num_classes,))),
        "span": list(dense("classifier", "span", width, (2,))),
    }


def _head(spec: ModernBertSpec, ours: str) -> Iterator[Entry]:
    width = (spec.hidden_size,)
    yield from dense("head.dense", f"{ours}/dense", width, width, use_bias=False)
    yield from norm("head.norm", f"{ours}/norm", *width, use_bias=False)


def _encoder(spec: ModernBertSpec) -> Iterator[Entry]:
    """The arrays of the encoder. Those of learned positions have no counterpart in transformers."""
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    heads, gate = (spec.num_attention_heads, spec.head_width), (2,) * (spec.feed_forward == GATED)
    tables = {"tok": ("token", spec.vocab_size)}
    if spec.positions == LEARNED:
        tables["position"] = ("position", spec.max_position_embeddings)
    for theirs, (ours, rows) in tables.items():
        shape, theirs = (rows, *width), f"model.embeddings.{theirs}_embeddings.weight"
        yield Entry(theirs, shape, f"modernbert/embeddings/{ours}", shape)
    yield from norm("model.embeddings.norm", "modernbert/embeddings/norm", *width, use_bias=False)
    for i in range(spec.num_hidden_layers):
        theirs, ours = f"model.layers.{i}", f"modernbert/encoder/layer_{i}"
        products = (
            ("attn.Wqkv", "attention/qkv", width, (3, *heads)),
            ("attn.Wo", "attention/output", heads, width),
            ("mlp.Wi", "feed_forward/intermediate", width, (*gate, *inner)),
            ("mlp.Wo", "feed_forward/output", inner, width),
        )
        for their_name, our_name, inputs, outputs in products:
            yield from dense(
                f"{theirs}.{their_name}", f"{ours}/{our_name}", inputs, outputs, use_bias=False
            )
        if i or spec.norm != BEFORE:
            yield from norm(f"{theirs}.attn_norm", f"{ours}/attention_norm", *width, use_bias=False)
        yield from norm(f"{theirs}.mlp_norm", f"{ours}/output_norm", *width, use_bias=False)
    if spec.norm == BEFORE:
        yield from norm("model.final_norm", "modernbert/final_norm", *width, use_bias=False)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **dict.fromkeys(_SIZES, int),
        **dict.fromkeys(_NUMBERS, float) | {"local_rope_theta": float | None},
        **dict.fromkeys(_WANTED, bool),
        **dict.fromkeys(("hidden_activation", "classifier_activation", "classifier_pooling"), str),
        "layer_types": list[str] | None,
        "rope_parameters": dict[str, _ROPE] | None,
        **dict.fromkeys(tuple(f"{role}_token_id" for role in _ROLES), int | None),
    },
    read_config=_read_config,
    write_config=_write_config,
    entries=_entries,
    prefixes={
        "modernbert": ("model.",),
        "masked_lm": ("head.", "decoder."),
        "pooler": ("head.",),
        "token_head": ("head.",),
        "classifier": ("classifier.",),
        "span": ("classifier.",),
    },
    one_spelling=with_prefix("model.", r"(embeddings|layers|final_norm)\."),
    bare="model.",
    buffers=(),
    copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
)
