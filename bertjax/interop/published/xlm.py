"""The names in transformers of XLM's classes, settings and arrays (modeling_xlm.py)."""

from collections.abc import Mapping
from typing import Any

from bertjax.interop.config_rows import FOUR_TIMES, ONLY_READ, ConfigRows, Operation
from bertjax.interop.names import Names
from bertjax.models.encoders import head_types

# A model with `causal` sees padding, too, so that it is not the one that reads left to right here.
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


def _languages(field: str, config: Mapping[str, Any]) -> int:
    languages = config[field] if config.get("use_lang_emb", True) else 0
    return languages if languages > 1 else 0


def _no_activation(field: str, config: Mapping[str, Any]) -> None:
    if config[field]:
        raise ValueError(f"{field}={config[field]!r}: cannot be read")


XLM = Names(
    classes={
        head_types.ENCODER: "XLMModel",
        head_types.MASKED_LM: "XLMWithLMHeadModel",
        head_types.SEQUENCE_CLASSIFICATION: "XLMForSequenceClassification",
        head_types.TOKEN_CLASSIFICATION: "XLMForTokenClassification",
        head_types.QUESTION_ANSWERING: "XLMForQuestionAnsweringSimple",
    },
    bare="transformer.",
    encoder=(
        ("embeddings/token", "embeddings.weight"),
        ("embeddings/position", "position_embeddings.weight"),
        ("embeddings/segment", "lang_embeddings.weight"),
        ("embeddings/norm", "layer_norm_emb"),
        ("encoder/layer_{i}/attention/qkv", "attentions.{i}.(q|k|v)_lin"),
        ("encoder/layer_{i}/attention/output", "attentions.{i}.out_lin"),
        ("encoder/layer_{i}/attention_norm", "layer_norm1.{i}"),
        ("encoder/layer_{i}/intermediate", "ffns.{i}.lin1"),
        ("encoder/layer_{i}/output", "ffns.{i}.lin2"),
        ("encoder/layer_{i}/output_norm", "layer_norm2.{i}"),
    ),
    parts={
        "masked_lm": (("bias", "pred_layer.proj.bias"),),
        "classifier": (("", "classifier"),),
        ("classifier", head_types.SEQUENCE_CLASSIFICATION): (("", "sequence_summary.summary"),),
        "span": (("", "qa_outputs"),),
    },
    copies={"pred_layer.proj.weight": "transformer.embeddings.weight"},
    buffers=(r"transformer\.position_ids",),
    spellings=((rf"^(?={_BARE})", "transformer."),),
    config=ConfigRows(
        rows=(
            ("n_words", "vocab_size", ONLY_READ._replace(type=int)),  # from 2019
            ("vocab_size", "vocab_size"),
            ("emb_dim", "hidden_size"),
            ("n_layers", "num_hidden_layers"),
            ("n_heads", "num_attention_heads"),
            ("emb_dim", "intermediate_size", FOUR_TIMES),
            ("max_position_embeddings", "max_position_embeddings"),
            ("dropout", "hidden_dropout_prob"),
            ("attention_dropout", "attention_probs_dropout_prob"),
            ("init_std", "initializer_range"),
            ("layer_norm_eps", "layer_norm_eps"),
            (
                "n_langs",
                "type_vocab_size",
                Operation(int, _languages, lambda spec: max(1, spec.type_vocab_size)),
            ),
            (
                "use_lang_emb",
                "type_vocab_size",
                Operation(bool, write=lambda spec: spec.type_vocab_size > 0),
            ),
            ("summary_activation", "", Operation(str | None, _no_activation)),
            # With it, the file of the weights has the same table of positions.
            ("sinusoidal_embeddings", "", Operation(bool, write=lambda _: False)),
        ),
        absent={"emb_dim": 2048, "n_heads": 16},
        wanted=_WANTED,
        written=_WANTED,
        roles=("pad", "bos", "eos", "mask"),
    ),
)
