"""The names in transformers of XLNet's classes, settings and arrays (modeling_xlnet.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.names import (
    WRITTEN_ACTIVATIONS,
    Entry,
    check_wanted,
    dense,
    norm,
    read_activation,
    with_prefix,
)
from bertjax.models.encoders.xlnet.spec import XlnetSpec

_CLASSES = {
    kinds.ENCODER: "XLNetModel",
    kinds.PERMUTATION_LM: "XLNetLMHeadModel",
    kinds.SEQUENCE_CLASSIFICATION: "XLNetForSequenceClassification",
    kinds.MULTIPLE_CHOICE: "XLNetForMultipleChoice",
    kinds.TOKEN_CLASSIFICATION: "XLNetForTokenClassification",
    kinds.QUESTION_ANSWERING: "XLNetForQuestionAnsweringSimple",
}
# Fields of config.json -> those of the spec.
_SIZES = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "d_inner": "intermediate_size",
}
_NUMBERS = {
    "dropout": "hidden_dropout_prob",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}
# With another value in one of these fields of config.json, the model computes something else. In
# transformers, one that reads left to right ("uni") takes no batch with padding.
_WANTED = {
    "attn_type": "bi",
    "untie_r": True,
    "bi_data": False,
    "clamp_len": -1,
    "same_length": False,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}  # the defaults


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    check_wanted(config, _WANTED)
    fields = _LARGE | {"intermediate_size": 4096}
    fields |= {ours: config[key] for key, ours in (_SIZES | _NUMBERS).items() if key in config}
    width, heads = fields["hidden_size"], fields["num_attention_heads"]
    if config.get("d_head", width // heads) != width // heads:
        raise ValueError(f"d_head={config['d_head']}: only d_model / n_head can be read")
    if "dropout" in config:
        fields["attention_probs_dropout_prob"] = config["dropout"]
    return fields | {"hidden_act": read_activation(config, "ff_activation")}


def _write_config(spec: XlnetSpec) -> dict[str, Any]:
    if spec.causal:
        raise ValueError("transformers has no xlnet with causal=True, only False")
    return {
        **{key: getattr(spec, ours) for key, ours in (_SIZES | _NUMBERS).items()},
        **_WANTED,
        "d_head": spec.head_width,
        "ff_activation": WRITTEN_ACTIVATIONS[spec.hidden_act],
    }


def _entries(spec: XlnetSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    of_texts = kind in kinds.OF_WHOLE_TEXTS
    classifier = "logits_proj" if of_texts else "classifier"
    entries = {
        "xlnet": _encoder(spec),
        "masked_lm": [Entry("lm_loss.bias", rows, "masked_lm/bias", rows)],
        "pooler": dense("sequence_summary.summary", "pooler/dense", width, width),
        "classifier": dense(classifier, "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def _encoder(spec: XlnetSpec) -> Iterator[Entry]:
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    heads = (spec.num_attention_heads, spec.head_width)
    table, kernel = (spec.vocab_size, *width), (*width, *heads)
    yield Entry("transformer.word_embedding.weight", table, "xlnet/embeddings/token", table)
    yield Entry("transformer.mask_emb", (1, 1, *width), "xlnet/embeddings/unknown", width)
    for i in range(spec.num_hidden_layers):
        layer, here = f"transformer.layer.{i}", f"xlnet/encoder/layer_{i}"
        theirs, ours = f"{layer}.rel_attn", f"{here}/attention"
        for their_name, our_name in zip("qkvr", ("query", "key", "value", "distance"), strict=True):
            yield Entry(f"{theirs}.{their_name}", kernel, f"{ours}/{our_name}/kernel", kernel)
        yield Entry(f"{theirs}.o", kernel, f"{ours}/output/kernel", (*heads, *width), None, True)
        for their_name, our_name, shape in (
            ("r_w_bias", "content_bias", heads),
            ("r_r_bias", "distance_bias", heads),
            ("r_s_bias", "text_bias", heads),
            ("seg_embed", "text", (2, *heads)),
        ):
            yield Entry(f"{theirs}.{their_name}", shape, f"{ours}/{our_name}", shape)
        yield from norm(f"{theirs}.layer_norm", f"{here}/attention_norm", *width)
        yield from dense(f"{layer}.ff.layer_1", f"{here}/intermediate", width, inner)
        yield from dense(f"{layer}.ff.layer_2", f"{here}/output", inner, width)
        yield from norm(f"{layer}.ff.layer_norm", f"{here}/output_norm", *width)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **dict.fromkeys((*_SIZES, "d_head"), int),
        **dict.fromkeys(_NUMBERS, float),
        **{name: type(value) for name, value in _WANTED.items()},
        "ff_activation": str,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), int | None),
    },
    read_config=_read_config,
    write_config=_write_config,
    entries=_entries,
    prefixes={
        "xlnet": ("transformer.",),
        "masked_lm": ("lm_loss.",),
        "pooler": ("sequence_summary.",),
        "classifier": ("logits_proj.", "classifier."),
        "span": ("qa_outputs.",),
    },
    one_spelling=with_prefix("transformer.", r"(word_embedding|layer)\.|mask_emb$"),
    bare="transformer.",
    buffers=(),
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
    last_token=True,
    pads_left=True,
)
