"""The names in transformers of DistilBERT: classes, settings, arrays (modeling_distilbert.py)."""

from bertjax.interop.config_rows import ACTIVATION, ConfigRows
from bertjax.interop.names import Names
from bertjax.models.encoders import head_types

DISTILBERT = Names(
    classes={
        head_types.ENCODER: "DistilBertModel",
        head_types.MASKED_LM: "DistilBertForMaskedLM",
        head_types.SEQUENCE_CLASSIFICATION: "DistilBertForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "DistilBertForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "DistilBertForTokenClassification",
        head_types.QUESTION_ANSWERING: "DistilBertForQuestionAnswering",
    },
    bare="distilbert.",
    encoder=(
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        ("embeddings/norm", "embeddings.LayerNorm"),
        ("encoder/layer_{i}/attention/qkv", "transformer.layer.{i}.attention.(q|k|v)_lin"),
        ("encoder/layer_{i}/attention/output", "transformer.layer.{i}.attention.out_lin"),
        ("encoder/layer_{i}/attention_norm", "transformer.layer.{i}.sa_layer_norm"),
        ("encoder/layer_{i}/intermediate", "transformer.layer.{i}.ffn.lin1"),
        ("encoder/layer_{i}/output", "transformer.layer.{i}.ffn.lin2"),
        ("encoder/layer_{i}/output_norm", "transformer.layer.{i}.output_layer_norm"),
    ),
    parts={
        "masked_lm": (
            ("transform", "vocab_transform"),
            ("norm", "vocab_layer_norm"),
            ("bias", "vocab_projector.bias"),
        ),
        "pre_classifier": (("dense", "pre_classifier"),),
        "classifier": (("", "classifier"),),
        "span": (("", "qa_outputs"),),
    },
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    buffers=(r"distilbert\.embeddings\.position_ids",),
    spellings=((r"^(?=(embeddings|transformer)\.)", "distilbert."),),
    config=ConfigRows(
        rows=(
            ("vocab_size", "vocab_size"),
            ("dim", "hidden_size"),
            ("n_layers", "num_hidden_layers"),
            ("n_heads", "num_attention_heads"),
            ("hidden_dim", "intermediate_size"),
            ("max_position_embeddings", "max_position_embeddings"),
            ("dropout", "hidden_dropout_prob"),
            ("attention_dropout", "attention_probs_dropout_prob"),
            ("initializer_range", "initializer_range"),
            ("activation", "hidden_act", ACTIVATION),
        ),
        written={"sinusoidal_pos_embds": False},
        roles=("pad",),
        title="DistilBERT",
    ),
)
