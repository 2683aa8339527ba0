"""The names in transformers of XLM's classes, settings and arrays (modeling_xlm.py)."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.names import Entry, check_wanted, dense, norm, with_prefix
from bertjax.models.encoders.xlm.spec import XlmSpec

_CLASSES = {
    kinds.ENCODER: "XLMModel",
    kinds.MASKED_LM: "XLMWithLMHeadModel",
    kinds.SEQUENCE_CLASSIFICATION: "XLMForSequenceClassification",
    kinds.TOKEN_CLASSIFICATION: "XLMForTokenClassification",
    kinds.QUESTION_ANSWERING: "XLMForQuestionAnsweringSimple",
}
# Fields of config.json -> those of the spec.
_SIZES = {
    "vocab_size": "vocab_size",
    "emb_dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "max_position_embeddings": "max_position_embeddings",
}
_NUMBERS = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
}
# With another value in one of these fields of config.json, the model computes something else. A
# model with `causal` sees padding, too, so that it is not the one that reads left to right here.
_WANTED = {
    "gelu_activation": True,
    "causal": False,
    "asm": False,
    "is_encoder": True,
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
}
# Names of an encoder that was saved alone.
_BARE = (
    r"(embeddings|position_embeddings|lang_embeddings|layer_norm_emb|attentions|layer_norm1|ffns"
    r"|layer_norm2)\.|position_ids$"
)


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    # With `sinusoidal_embeddings`, the file of the weights has the same table of positions.
    check_wanted(config, _WANTED)
    if config.get("summary_activation"):
        raise ValueError(f"summary_activation={config['summary_activation']!r}: cannot be read")
    published = {"vocab_size": config["n_words"]} if "n_words" in config else {}  # from 2019
    given = published | dict(config)
    fields = {ours: given[key] for key, ours in (_SIZES | _NUMBERS).items() if key in given}
    languages = given.get("n_langs", 1) if given.get("use_lang_emb", True) else 0
    width = fields.setdefault("hidden_size", 2048)
    fields.setdefault("num_attention_heads", 16)
    return fields | {
        "intermediate_size": 4 * width,
        "type_vocab_size": languages if languages > 1 else 0,
    }


def _write_config(spec: XlmSpec) -> dict[str, Any]:
    wanted = {
        "hidden_act": "gelu",
        "causal": False,
        "intermediate_size": 4 * spec.hidden_size,
    }
    for field, value in wanted.items():
        if getattr(spec, field) != value:
            raise ValueError(
                f"transformers has no xlm with {field}={getattr(spec, field)!r}, only {value!r}"
            )
    return {
        **{key: getattr(spec, ours) for key, ours in (_SIZES | _NUMBERS).items()},
        **_WANTED,
        "sinusoidal_embeddings": False,
        "n_langs": max(1, spec.type_vocab_size),
        "use_lang_emb": spec.type_vocab_size > 0,
    }


def _entries(spec: XlmSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
    width, rows = (spec.hidden_size,), (spec.vocab_size,)
    is_sequence = kind == kinds.SEQUENCE_CLASSIFICATION
    classifier = "sequence_summary.summary" if is_sequence else "classifier"
    entries = {
        "xlm": _encoder(spec),
        "masked_lm": [Entry("pred_layer.proj.bias", rows, "masked_lm/bias", rows)],
        "classifier": dense(classifier, "classifier", width, (num_classes,)),
        "span": dense("qa_outputs", "span", width, (2,)),
    }
    return {part: list(each) for part, each in entries.items()}


def _encoder(spec: XlmSpec) -> Iterator[Entry]:
    width, inner = (spec.hidden_size,), (spec.intermediate_size,)
    heads, theirs = (spec.num_attention_heads, spec.head_width), "transformer"
    for their_name, our_name, rows in (
        ("embeddings", "token", spec.vocab_size),
        ("position_embeddings", "position", spec.position_rows),
        ("lang_embeddings", "segment", spec.type_vocab_size),
    ):
        shape = (rows, *width)
        if rows:
            yield Entry(f"{theirs}.{their_name}.weight", shape, f"xlm/embeddings/{our_name}", shape)
    yield from norm(f"{theirs}.layer_norm_emb", "xlm/embeddings/norm", *width)
    for i in range(spec.num_hidden_layers):
        here, attention = f"xlm/encoder/layer_{i}", f"{theirs}.attentions.{i}"
        for part, name in enumerate(("q_lin", "k_lin", "v_lin")):
            yield from dense(f"{attention}.{name}", f"{here}/attention/qkv", width, heads, part)
        yield from dense(f"{attention}.out_lin", f"{here}/attention/output", heads, width)
        yield from norm(f"{theirs}.layer_norm1.{i}", f"{here}/attention_norm", *width)
        yield from dense(f"{theirs}.ffns.{i}.lin1", f"{here}/intermediate", width, inner)
        yield from dense(f"{theirs}.ffns.{i}.lin2", f"{here}/output", inner, width)
        yield from norm(f"{theirs}.layer_norm2.{i}", f"{here}/output_norm", *width)


HUGGING_FACE = HuggingFace(
    classes=_CLASSES,
    fields={
        **dict.fromkeys((*_SIZES, "n_words", "n_langs"), int),
        **dict.fromkeys(_NUMBERS, float),
        **{name: type(value) for name, value in _WANTED.items()},
        **dict.fromkeys(("use_lang_emb", "sinusoidal_embeddings"), bool),
        "summary_activation": str | None,
        **dict.fromkeys(
            ("pad_token_id", "bos_token_id", "eos_token_id", "mask_token_id"), int | None
        ),
    },
    read_config=_read_config,
    write_config=_write_config,
    entries=_entries,
    prefixes={
        "xlm": ("transformer.",),
        "masked_lm": ("pred_layer.",),
        "classifier": ("sequence_summary.", "classifier."),
        "span": ("qa_outputs.",),
    },
    one_spelling=with_prefix("transformer.", _BARE),
    bare="transformer.",
    buffers=(r"transformer\.position_ids",),
    copies={"pred_layer.proj.weight": "transformer.embeddings.weight"},
)
