"""The names in transformers of XLNet's classes, settings and arrays (modeling_xlnet.py).

transformers has no Transformer-XL since its version 5. Its arrays have XLNet's names.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.interop.config_rows import ACTIVATION, ONLY_READ, ConfigRows, Operation, check_only
from bertjax.interop.names import Names, after_ones, outputs_first
from bertjax.models.encoders import head_types

# In transformers, a model that reads left to right ("uni") takes no batch with padding.
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


def _check_width(field: str, config: Mapping[str, Any]) -> None:
    fits = config[field] * config["n_head"] == config["d_model"]
    check_only(fits, field, config[field], "d_model / n_head")


XLNET = Names(
    classes={
        head_types.ENCODER: "XLNetModel",
        head_types.PERMUTATION_LM: "XLNetLMHeadModel",
        head_types.SEQUENCE_CLASSIFICATION: "XLNetForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "XLNetForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "XLNetForTokenClassification",
        head_types.QUESTION_ANSWERING: "XLNetForQuestionAnsweringSimple",
    },
    bare="transformer.",
    encoder=(
        ("embeddings/token", "word_embedding.weight"),
        ("embeddings/unknown", "mask_emb", after_ones(2)),
        ("encoder/layer_{i}/attention/query/kernel", "layer.{i}.rel_attn.q"),
        ("encoder/layer_{i}/attention/key/kernel", "layer.{i}.rel_attn.k"),
        ("encoder/layer_{i}/attention/value/kernel", "layer.{i}.rel_attn.v"),
        ("encoder/layer_{i}/attention/distance/kernel", "layer.{i}.rel_attn.r"),
        ("encoder/layer_{i}/attention/output/kernel", "layer.{i}.rel_attn.o", outputs_first),
        ("encoder/layer_{i}/attention/content_bias", "layer.{i}.rel_attn.r_w_bias"),
        ("encoder/layer_{i}/attention/distance_bias", "layer.{i}.rel_attn.r_r_bias"),
        ("encoder/layer_{i}/attention/text_bias", "layer.{i}.rel_attn.r_s_bias"),
        ("encoder/layer_{i}/attention/text", "layer.{i}.rel_attn.seg_embed"),
        ("encoder/layer_{i}/attention_norm", "layer.{i}.rel_attn.layer_norm"),
        ("encoder/layer_{i}/intermediate", "layer.{i}.ff.layer_1"),
        ("encoder/layer_{i}/output", "layer.{i}.ff.layer_2"),
        ("encoder/layer_{i}/output_norm", "layer.{i}.ff.layer_norm"),
    ),
    parts={
        "masked_lm": (("bias", "lm_loss.bias"),),
        "pooler": (("dense", "sequence_summary.summary"),),
        "classifier": (("", "classifier"),),
        **{
            ("classifier", head_type): (("", "logits_proj"),)
            for head_type in head_types.OF_WHOLE_TEXTS
        },
        "span": (("", "qa_outputs"),),
    },
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
    spellings=((r"^(?=(word_embedding|layer)\.|mask_emb$)", "transformer."),),
    config=ConfigRows(
        rows=(
            ("vocab_size", "vocab_size"),
            ("d_model", "hidden_size"),
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("d_head", "", Operation(int, _check_width, lambda spec: spec.head_width)),
            ("d_inner", "intermediate_size"),
            ("dropout", "hidden_dropout_prob"),
            ("dropout", "attention_probs_dropout_prob", ONLY_READ),
            ("initializer_range", "initializer_range"),
            ("layer_norm_eps", "layer_norm_eps"),
            ("ff_activation", "hidden_act", ACTIVATION),
        ),
        absent={"d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096},
        wanted=_WANTED,
        written=_WANTED,
        lost=("max_position_embeddings",),
        roles=("pad", "bos", "eos"),
    ),
    last_token=True,
    pads_left=True,
)

TRANSFORMER_XL = Names(
    classes={},
    encoder=XLNET.encoder,
    bare=XLNET.bare,
    parts={"masked_lm": XLNET.parts["masked_lm"]},
    config=ConfigRows(
        title="Transformer-XL",
        instead="its published weights have an adaptive softmax, which is not read: give a run",
    ),
)
