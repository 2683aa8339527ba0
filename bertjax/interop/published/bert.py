"""The names in transformers of BERT's classes, settings and arrays (modeling_bert.py)."""

from bertjax.interop.config_rows import ACTIVATION, IF_CAUSAL, ConfigRows, same
from bertjax.interop.names import Names
from bertjax.models.encoders import head_types

LAYERS = (  # also those of RoBERTa and ELECTRA
    ("embeddings/token", "embeddings.word_embeddings.weight"),
    ("embeddings/position", "embeddings.position_embeddings.weight"),
    ("embeddings/segment", "embeddings.token_type_embeddings.weight"),
    ("embeddings/norm", "embeddings.LayerNorm"),
    ("encoder/layer_{i}/attention/qkv", "encoder.layer.{i}.attention.self.(query|key|value)"),
    ("encoder/layer_{i}/attention/output", "encoder.layer.{i}.attention.output.dense"),
    ("encoder/layer_{i}/attention_norm", "encoder.layer.{i}.attention.output.LayerNorm"),
    ("encoder/layer_{i}/intermediate", "encoder.layer.{i}.intermediate.dense"),
    ("encoder/layer_{i}/output", "encoder.layer.{i}.output.dense"),
    ("encoder/layer_{i}/output_norm", "encoder.layer.{i}.output.LayerNorm"),
)
CONFIG = ConfigRows(
    rows=(
        *same(("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")),
        *same(("intermediate_size", "max_position_embeddings", "type_vocab_size")),
        *same(("hidden_dropout_prob", "attention_probs_dropout_prob")),
        *same(("initializer_range", "layer_norm_eps")),
        ("hidden_act", "hidden_act", ACTIVATION),
        ("is_decoder", "causal", IF_CAUSAL),
    ),
    wanted={"position_embedding_type": "absolute", "add_cross_attention": False},
    written={"position_embedding_type": "absolute", "classifier_dropout": None},
    roles=("pad",),
)
BERT = Names(
    classes={
        head_types.ENCODER: "BertModel",
        head_types.PRE_TRAINING: "BertForPreTraining",
        head_types.MASKED_LM: "BertForMaskedLM",
        head_types.CAUSAL_LM: "BertLMHeadModel",
        head_types.SEQUENCE_CLASSIFICATION: "BertForSequenceClassification",
        head_types.MULTIPLE_CHOICE: "BertForMultipleChoice",
        head_types.TOKEN_CLASSIFICATION: "BertForTokenClassification",
        head_types.QUESTION_ANSWERING: "BertForQuestionAnswering",
    },
    bare="bert.",
    encoder=LAYERS,
    parts={
        "pooler": (("dense", "bert.pooler.dense"),),
        "masked_lm": (
            ("transform", "cls.predictions.transform.dense"),
            ("norm", "cls.predictions.transform.LayerNorm"),
            ("bias", "cls.predictions.bias"),
        ),
        "next_sentence_head": (("", "cls.seq_relationship"),),
        "classifier": (("", "classifier"),),
        "span": (("", "qa_outputs"),),
    },
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    buffers=(r"bert\.embeddings\.(position|token_type)_ids",),
    spellings=(
        (r"^(?=(embeddings|encoder|pooler)\.)", "bert."),  # BertModel alone has no prefix
        (r"\.LayerNorm\.gamma$", ".LayerNorm.weight"),  # names from before 2019
        (r"\.LayerNorm\.beta$", ".LayerNorm.bias"),
    ),
    config=CONFIG,
)
