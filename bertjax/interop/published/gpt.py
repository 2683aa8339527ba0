"""The names in transformers of the classes, settings and arrays of GPT and GPT-2.

They are those of modeling_openai.py and modeling_gpt2.py. Kernels of layers (Conv1D) are stored
[in, out] there, and those of output layers [out, in].
"""

from collections.abc import Mapping
from typing import Any

from bertjax.interop.config_rows import (
    ACTIVATIONS,
    FOUR_TIMES,
    WRITTEN_ACTIVATIONS,
    ConfigRows,
    activation,
    only_written,
)
from bertjax.interop.config_rows import Row as ConfigRow
from bertjax.interop.names import Names, without_transpose
from bertjax.models.encoders import head_types

_COMMON = {
    head_types.ENCODER: "Model",
    head_types.CAUSAL_LM: "LMHeadModel",
    head_types.SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
}
_OF_GPT2 = {
    head_types.TOKEN_CLASSIFICATION: "ForTokenClassification",
    head_types.QUESTION_ANSWERING: "ForQuestionAnswering",
}
_INNER = FOUR_TIMES._replace(
    type=int | None, read=lambda field, config: config[field] or 4 * config["n_embd"]
)
_OF_GPT2_ACT = activation(ACTIVATIONS, {**WRITTEN_ACTIVATIONS, "gelu_tanh": "gelu_new"})
# GPT's "gelu" is the tanh form.
_OF_GPT_ACT = activation(
    {"gelu": "gelu_tanh", "silu": "silu", "swish": "silu"}, {"gelu_tanh": "gelu", "silu": "silu"}
)


def _names(
    prefix: str,
    classes: Mapping[str, str],
    token: str,
    position: str,
    rows: tuple[ConfigRow, ...],
    wanted: Mapping[str, Any],
) -> Names:
    return Names(
        classes={head_type: prefix + ending for head_type, ending in classes.items()},
        bare="transformer.",
        encoder=(
            ("embeddings/token", f"{token}.weight"),
            ("embeddings/position", f"{position}.weight"),
            ("encoder/layer_{i}/attention/qkv", "h.{i}.attn.c_attn", without_transpose),
            ("encoder/layer_{i}/attention/output", "h.{i}.attn.c_proj", without_transpose),
            ("encoder/layer_{i}/intermediate", "h.{i}.mlp.c_fc", without_transpose),
            ("encoder/layer_{i}/output", "h.{i}.mlp.c_proj", without_transpose),
            ("encoder/layer_{i}/attention_norm", "h.{i}.ln_1"),
            ("encoder/layer_{i}/output_norm", "h.{i}.ln_2"),
            ("final_norm", "ln_f"),
        ),
        parts={
            ("classifier", head_types.SEQUENCE_CLASSIFICATION): (("", "score"),),
            ("classifier", head_types.TOKEN_CLASSIFICATION): (("", "classifier"),),
            "span": (("", "qa_outputs"),),
        },
        copies={"lm_head.weight": f"transformer.{token}.weight"},
        buffers=(r"transformer\.(h\.\d+\.attn\.(bias|masked_bias)|position_ids)",),
        spellings=((rf"^(?=({token}|{position}|ln_f|h\.\d+)\.|position_ids$)", "transformer."),),
        config=ConfigRows(
            rows=(
                ("vocab_size", "vocab_size"),
                ("n_positions", "max_position_embeddings"),
                ("n_ctx", "max_position_embeddings", only_written("max_position_embeddings")),
                ("n_embd", "hidden_size"),
                ("n_layer", "num_hidden_layers"),
                ("n_head", "num_attention_heads"),
                # There are three rates of dropout. That of the embeddings is the residual's here.
                ("resid_pdrop", "hidden_dropout_prob"),
                ("embd_pdrop", "hidden_dropout_prob", only_written("hidden_dropout_prob", float)),
                ("attn_pdrop", "attention_probs_dropout_prob"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("initializer_range", "initializer_range"),
                *rows,
            ),
            absent={"n_embd": 768, "n_inner": None},
            wanted=wanted,
            written=wanted,
            roles=("pad", "bos", "eos"),
        ),
        last_token=True,
    )


GPT = _names(
    "OpenAIGPT",
    _COMMON,
    "tokens_embed",
    "positions_embed",
    rows=(("n_inner", "intermediate_size", _INNER), ("afn", "hidden_act", _OF_GPT_ACT)),
    wanted={},
)
GPT2 = _names(
    "GPT2",
    _COMMON | _OF_GPT2,
    "wte",
    "wpe",
    rows=(
        (
            "n_inner",
            "intermediate_size",
            _INNER._replace(write=lambda spec: spec.intermediate_size),
        ),
        ("activation_function", "hidden_act", _OF_GPT2_ACT),
    ),
    wanted={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
)
