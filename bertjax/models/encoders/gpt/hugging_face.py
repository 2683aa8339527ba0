"""The names in transformers of the classes, settings and arrays of GPT and GPT-2.

They are those of modeling_openai.py and modeling_gpt2.py. Kernels of layers (Conv1D) are stored
[in, out] there, and those of output layers [out, in].
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import HuggingFace
from bertjax.models.encoders.gpt.spec import Gpt2Spec, GptSpec
from bertjax.models.encoders.names import (
    Entry,
    check_wanted,
    dense,
    norm,
    read_activation,
    with_prefix,
)

# Field of config.json -> field of the spec. Both have three rates of dropout, of which the one of
# the embeddings is the residual's here.
_SIZES = {
    "vocab_size": "vocab_size",
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
}
_NUMBERS = {
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
}
# With another value in one of these fields of config.json, the model computes something else.
_WANTED_OF_GPT = {"afn": "gelu"}  # its name there of the tanh form
_WANTED_OF_GPT2 = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
# Names of an encoder that was saved alone.
_BARE = r"(wte|wpe|ln_f|tokens_embed|positions_embed|h\.\d+)\.|position_ids$"


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    fields = {ours: config[key] for key, ours in (_SIZES | _NUMBERS).items() if key in config}
    inner = 4 * fields.get("hidden_size", GptSpec.hidden_size)
    return fields | {"intermediate_size": config.get("n_inner") or inner}


def _written(spec: GptSpec) -> dict[str, Any]:
    fields = {key: getattr(spec, ours) for key, ours in (_SIZES | _NUMBERS).items()}
    return fields | {"embd_pdrop": spec.hidden_dropout_prob}


def _read_gpt(config: Mapping[str, Any]) -> dict[str, Any]:
    check_wanted(config, _WANTED_OF_GPT)
    return _read(config)


def _write_gpt(spec: GptSpec) -> dict[str, Any]:
    wanted = {"hidden_act": "gelu_tanh", "intermediate_size": 4 * spec.hidden_size}
    for field, value in wanted.items():
        if getattr(spec, field) != value:
            raise ValueError(
                f"transformers has no openai-gpt with {field}={getattr(spec, field)!r}, only "
                f"{value!r}"
            )
    return _written(spec) | _WANTED_OF_GPT


def _read_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    check_wanted(config, _WANTED_OF_GPT2)
    given = {"activation_function": "gelu_new"} | dict(config)
    return _read(config) | {"hidden_act": read_activation(given, "activation_function")}


def _write_gpt2(spec: Gpt2Spec) -> dict[str, Any]:
    return (
        _written(spec)
        | _WANTED_OF_GPT2
        | {
            "n_inner": spec.intermediate_size,
            "activation_function": _ACTIVATIONS[spec.hidden_act],
        }
    )


def _entries(token: str, position: str) -> Callable[[GptSpec, str, int], Mapping[str, list[Entry]]]:
    """The arrays of a model, whose tables of embeddings have these names."""

    def entries(spec: GptSpec, kind: str, num_classes: int) -> dict[str, list[Entry]]:
        width, name = (spec.hidden_size,), spec.encoder
        found = {
            name: _encoder(spec, token, position),
            "span": dense("qa_outputs", "span", width, (2,)),
        }
        if kind == kinds.TOKEN_CLASSIFICATION:
            found["classifier"] = dense("classifier", "classifier", width, (num_classes,))
        elif kind == kinds.SEQUENCE_CLASSIFICATION:
            found["classifier"] = dense(
                "score", "classifier", width, (num_classes,), use_bias=False
            )
        return {part: list(each) for part, each in found.items()}

    return entries


def _encoder(spec: GptSpec, token: str, position: str) -> Iterator[Entry]:
    name, width, inner = spec.encoder, (spec.hidden_size,), (spec.intermediate_size,)
    heads = (spec.num_attention_heads, spec.head_width)
    for theirs, ours, rows in (
        (token, "token", spec.vocab_size),
        (position, "position", spec.position_rows),
    ):
        shape = (rows, *width)
        yield Entry(f"transformer.{theirs}.weight", shape, f"{name}/embeddings/{ours}", shape)
    for i in range(spec.num_hidden_layers):
        layer, here = f"transformer.h.{i}", f"{name}/encoder/layer_{i}"
        for their_name, our_name, inputs, outputs in (
            ("attn.c_attn", "attention/qkv", width, (3, *heads)),
            ("attn.c_proj", "attention/output", heads, width),
            ("mlp.c_fc", "intermediate", width, inner),
            ("mlp.c_proj", "output", inner, width),
        ):
            yield from dense(
                f"{layer}.{their_name}", f"{here}/{our_name}", inputs, outputs, transposed=False
            )
        yield from norm(f"{layer}.ln_1", f"{here}/attention_norm", *width)
        yield from norm(f"{layer}.ln_2", f"{here}/output_norm", *width)
    if spec.norm_first:
        yield from norm("transformer.ln_f", f"{name}/final_norm", *width)


def _names(
    spec: type[GptSpec],
    class_prefix: str,
    classes: dict[str, str],
    wanted: Mapping[str, Any],
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]],
    write_config: Callable[[Any], dict[str, Any]],
    token: str,
    position: str,
) -> HuggingFace:
    common = {kinds.ENCODER: "Model", kinds.CAUSAL_LM: "LMHeadModel"}
    common |= {kinds.SEQUENCE_CLASSIFICATION: "ForSequenceClassification"}
    return HuggingFace(
        classes={kind: class_prefix + ending for kind, ending in (common | classes).items()},
        fields={
            **dict.fromkeys(_SIZES, int),
            "n_inner": int | None,
            **dict.fromkeys((*_NUMBERS, "embd_pdrop"), float),
            **{name: type(value) for name, value in wanted.items()},
            "activation_function": str,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), int | None),
        },
        read_config=read_config,
        write_config=write_config,
        entries=_entries(token, position),
        prefixes={
            spec.encoder: ("transformer.",),
            "classifier": ("score.", "classifier."),
            "span": ("qa_outputs.",),
        },
        one_spelling=with_prefix("transformer.", _BARE),
        bare="transformer.",
        buffers=(r"transformer\.(h\.\d+\.attn\.(bias|masked_bias)|position_ids)",),
        copies={"lm_head.weight": f"transformer.{token}.weight"},
        last_token=True,
    )


OF_GPT = _names(
    GptSpec,
    "OpenAIGPT",
    {},
    _WANTED_OF_GPT,
    _read_gpt,
    _write_gpt,
    "tokens_embed",
    "positions_embed",
)
OF_GPT2 = _names(
    Gpt2Spec,
    "GPT2",
    {
        kinds.TOKEN_CLASSIFICATION: "ForTokenClassification",
        kinds.QUESTION_ANSWERING: "ForQuestionAnswering",
    },
    _WANTED_OF_GPT2,
    _read_gpt2,
    _write_gpt2,
    "wte",
    "wpe",
)
