"""The published architectures of the transformer: a row of values each, and its models."""

from collections.abc import Mapping
from functools import partial

from bertjax.base.fields import LANGUAGE_IDS, POSITION_IDS, SEGMENT_IDS, TEXT, Field
from bertjax.models.encoders import head_types
from bertjax.models.encoders.cache import empty_cache
from bertjax.models.encoders.contract import EncoderFamily, PoolerSpec
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.models.encoders.transformer import Transformer

# (layers, hidden size, attention heads, feed-forward width)
SIZES: Mapping[str, tuple[int, ...]] = {
    "tiny": (2, 128, 2, 512),  # tiny to medium: Turc et al. (arXiv 1908.08962), Table 1
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),  # base and large: BERT, section 3
    "large": (24, 1024, 16, 4096),
    "L3_H768_A12": (3, 768, 12, 3072),  # the rows of BERT's Table 6
    "L6_H768_A3": (6, 768, 3, 3072),
    "L6_H768_A12": (6, 768, 12, 3072),
    "L12_H768_A12": (12, 768, 12, 3072),
    "L12_H1024_A16": (12, 1024, 16, 4096),
    "L24_H1024_A16": (24, 1024, 16, 4096),
}

# The settings that a config may name, in every preset, in most of them, and in BERT.
_COMMON = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "max_position_embeddings", "hidden_act", "hidden_dropout_prob"),
    *("attention_probs_dropout_prob", "initializer_range", "causal"),
)
_USUAL = (*_COMMON, "layer_norm_eps")
_OF_BERT = (*_USUAL, "type_vocab_size")


class BertSpec(TransformerSpec, fields=_OF_BERT):
    """BERT (arXiv 1810.04805, section 3)."""

    encoder = "bert"
    sizes = SIZES
    type_vocab_size = 2


class RobertaSpec(BertSpec, fields=(*_OF_BERT, "pad_token_id")):
    """RoBERTa (arXiv 1907.11692): one token type, and positions after the id of the padding.

    `max_position_embeddings` is the longest sequence, 512; config.json of transformers has the
    rows of the table there, 514.
    """

    encoder = "roberta"
    vocab_size = 50_265
    type_vocab_size = 1
    layer_norm_eps = 1e-5
    positions = "counted"
    pad_token_id = 1
    lm_act = "gelu"


class XlmRobertaSpec(RobertaSpec):
    """XLM-RoBERTa (arXiv 1911.02116)."""

    encoder = "xlm-roberta"
    vocab_size = 250_002


class CamembertSpec(RobertaSpec):
    """CamemBERT (arXiv 1911.03894)."""

    encoder = "camembert"
    vocab_size = 32_005


class ElectraSpec(BertSpec, fields=(*_OF_BERT, "embedding_size")):
    """ELECTRA (arXiv 2003.10555): generator and discriminator may share narrower embeddings."""

    encoder = "electra"
    size_fields = (*TransformerSpec.size_fields, "embedding_size")
    sizes = {
        "tiny": (*SIZES["tiny"], 128),
        "mini": (*SIZES["mini"], 128),
        "small": (12, 256, 4, 1024, 128),  # small to large: Table 6
        "base": (*SIZES["base"], 768),
        "large": (*SIZES["large"], 1024),
    }
    embedding_size = 128
    lm_act = "gelu"


class DebertaV2Spec(
    TransformerSpec,
    fields=(
        *(*_USUAL, "position_buckets", "max_relative_positions"),
        *("conv_kernel_size", "conv_act"),
    ),
):
    """DeBERTa-v2 and v3 (arXiv 2006.03654, 2111.09543)."""

    encoder = "deberta-v2"
    size_fields = (*TransformerSpec.size_fields, "conv_kernel_size")
    sizes = {
        "tiny": (*SIZES["tiny"], 0),  # tiny and mini: ours
        "mini": (*SIZES["mini"], 0),
        "xsmall": (12, 384, 6, 1536, 0),  # xsmall to large: the published v3
        "small": (*SIZES["L6_H768_A12"], 0),
        "base": (*SIZES["base"], 0),
        "large": (*SIZES["large"], 0),
        "xlarge": (24, 1536, 24, 6144, 3),  # xlarge and xxlarge: the published v2
        "xxlarge": (48, 1536, 24, 6144, 3),
    }
    vocab_size = 128_100
    layer_norm_eps = 1e-7
    positions = "disentangled"


class DistilBertSpec(TransformerSpec, fields=_COMMON):
    """DistilBERT (arXiv 1910.01108, section 3): no token types, and no pooler."""

    encoder = "distilbert"
    # Half of the layers of a BERT of that name ("Student architecture").
    sizes = {name: (max(1, layers // 2), *others) for name, (layers, *others) in SIZES.items()}
    num_hidden_layers = 6


class XlmSpec(TransformerSpec, fields=_OF_BERT):
    """XLM (arXiv 1901.07291): the token types are languages; 0: no embeddings of them."""

    encoder = "xlm"
    sizes = {
        **{name: SIZES[name] for name in ("tiny", "mini", "small")},
        "base": (12, 1024, 8, 4096),  # section 5.1
        "large": (12, 2048, 16, 8192),  # the published xlm-mlm-en-2048
    }
    vocab_size = 30_145
    hidden_size = 1024
    num_attention_heads = 8
    intermediate_size = 4096
    type_input = "language_ids"
    lm_head = "bias"

    def __post_init__(self):
        super().__post_init__()
        if self.type_vocab_size == 1:
            raise ValueError("type_vocab_size=1: the number of languages, at least 2; or 0")


def check_causal(spec: TransformerSpec) -> None:
    """Raises ValueError for a spec of a model that only reads left to right, if it does not."""
    if not spec.causal:
        raise ValueError(
            f"causal=False: {spec.encoder} reads left to right only: set "
            "config.objective='left_to_right', or choose another config.model.encoder"
        )


class GptSpec(TransformerSpec, fields=_USUAL):
    """GPT (Radford et al., 2018, section 4.1): left to right, and the embeddings are not normed."""

    encoder = "openai-gpt"
    sizes = {name: SIZES[name] for name in ("tiny", "mini", "base")}
    vocab_size = 40_478
    hidden_act = "gelu_tanh"
    layer_norm_eps = 1e-5
    causal = True
    embedding_norm = False
    lm_head = "none"

    def __post_init__(self):
        super().__post_init__()
        check_causal(self)


class Gpt2Spec(GptSpec):
    """GPT-2 (Radford et al., 2019, section 2.3 and Table 2): norms before the sublayers."""

    encoder = "gpt2"
    sizes = {
        **{name: SIZES[name] for name in ("tiny", "mini")},
        "small": SIZES["base"],
        "medium": SIZES["large"],
        "large": (36, 1280, 20, 5120),
        "xl": (48, 1600, 25, 6400),
    }
    vocab_size = 50_257
    max_position_embeddings = 1024
    norm = "before"
    residual_by_depth = True


class ModernBertSpec(
    TransformerSpec,
    fields=(
        *(*_USUAL, "positions", "norm", "feed_forward", "classifier_pooling"),
        *("global_attn_every_n_layers", "local_attention", "global_rope_theta", "local_rope_theta"),
    ),
):
    """ModernBERT (arXiv 2412.13663, section 2.1)."""

    encoder = "modernbert"
    sizes = {
        "tiny": (2, 128, 2, 336),  # tiny and mini: about as many parameters a layer as BERT's
        "mini": (4, 256, 4, 680),
        "17m": (7, 256, 4, 384),  # 17m to 1b: Ettin (arXiv 2507.11412), Table 1
        "32m": (10, 384, 6, 576),
        "68m": (19, 512, 8, 768),
        "base": (22, 768, 12, 1152),  # base and large: ModernBERT, Table 4; Ettin's 150m and 400m
        "large": (28, 1024, 16, 2624),
        "1b": (28, 1792, 28, 3840),
    }
    phase_fields = (*TransformerSpec.phase_fields, "global_rope_theta", "local_rope_theta")
    choices = {
        **TransformerSpec.choices,
        "positions": ("rotary", "learned"),
        "classifier_pooling": ("cls", "mean"),
    }
    vocab_size = 50_368
    num_hidden_layers = 22
    intermediate_size = 1152
    max_position_embeddings = 8192
    positions = "rotary"
    norm = "before"
    norm_type = "unbiased"
    use_bias = False
    feed_forward = "gated"
    global_attn_every_n_layers = 3
    global_rope_theta = 160_000.0
    hidden_dropout_prob = 0.0
    attention_probs_dropout_prob = 0.0
    layer_norm_eps = 1e-5
    dropout_of = "inner"
    residual_by_depth = True


class EuroBertSpec(
    TransformerSpec,
    fields=(*_USUAL, "num_key_value_heads", "global_rope_theta", "classifier_pooling"),
):
    """EuroBERT (arXiv 2503.05500, section 2): Llama's blocks, in both directions."""

    encoder = "eurobert"
    size_fields = (*TransformerSpec.size_fields, "num_key_value_heads")
    sizes = {
        "tiny": (2, 128, 2, 344, 1),  # tiny and mini: ours
        "mini": (4, 256, 4, 688, 2),
        "210m": (12, 768, 12, 3072, 12),  # 210m to 2.1b: the published ones
        "610m": (26, 1152, 18, 4096, 6),
        "2.1b": (32, 2304, 18, 6144, 6),
    }
    phase_fields = (*TransformerSpec.phase_fields, "global_rope_theta")
    vocab_size = 128_256
    max_position_embeddings = 8192
    positions = "rotary"
    global_rope_theta = 250_000.0
    norm = "before"
    norm_type = "rms"
    layer_norm_eps = 1e-5
    embedding_norm = False
    use_bias = False
    feed_forward = "gated"
    hidden_act = "silu"
    hidden_dropout_prob = 0.0
    attention_probs_dropout_prob = 0.0
    classifier_pooling = "late"
    lm_head = "none"
    tied = False


class NeoBertSpec(EuroBertSpec, fields=_USUAL):
    """NeoBERT (arXiv 2502.19587, section 3): EuroBERT's blocks, with all heads of keys and values.

    `intermediate_size` is the width that is computed; config.json has 3/2 of it.
    """

    encoder = "neobert"
    size_fields = TransformerSpec.size_fields
    sizes = {
        **{name: EuroBertSpec.sizes[name][:4] for name in ("tiny", "mini")},
        "250m": (28, 768, 12, 2048),  # the published one
    }
    phase_fields = TransformerSpec.phase_fields
    vocab_size = 30_522
    num_hidden_layers = 28
    intermediate_size = 2048
    max_position_embeddings = 4096
    global_rope_theta = 10_000.0
    classifier_pooling = "cls"
    lm_head = "bias"


# Patterns of the scopes of a compiled program; see `EncoderFamily`.
SCOPES = (
    (r"/convolution/", "convolution"),
    (r"/attention/(qkv|query|key_value|output)/", "attention projections"),
    (r"/local_layer/.*/attention/", "local attention"),
    (r"/attention/", "attention"),
    (r"_dropout/|embeddings/dropout/", "dropout"),
    (r"_norm/|/norm/", "layer norm"),
    (r"/(intermediate|output|activation)/", "feed-forward"),
    (r"/(embeddings|projection)/", "embeddings"),
)


def _family(
    spec: type[TransformerSpec],
    poolers: Mapping[str, PoolerSpec],
    *,
    inputs: Mapping[str, Field] = TEXT | SEGMENT_IDS | POSITION_IDS,
    without: tuple[str, ...] = (),
    token_head: bool = False,
    unbiased: tuple[str, ...] = (),
    context_norm: bool = False,
) -> EncoderFamily:
    """A preset as a family, which has no models of the kinds in `without`."""
    language_model = ("masked_lm",) * (spec.lm_head != "none" or not spec.tied)
    of_tokens = ("token_head",) * token_head
    read = {head_type: (row.part,) * bool(row.act) for head_type, row in poolers.items()}
    heads = {
        head_types.ENCODER: read.get(head_types.ENCODER, ()),
        head_types.MASKED_LM: language_model,
        head_types.REPLACED_TOKENS: ("replaced_tokens",),
        head_types.CAUSAL_LM: language_model,
        head_types.SEQUENCE_CLASSIFICATION: (
            *read[head_types.SEQUENCE_CLASSIFICATION],
            "classifier",
        ),
        head_types.MULTIPLE_CHOICE: (*read[head_types.MULTIPLE_CHOICE], "classifier"),
        head_types.TOKEN_CLASSIFICATION: (*of_tokens, "classifier"),
        head_types.QUESTION_ANSWERING: (*of_tokens, "span"),
    }
    if head_types.PRE_TRAINING in read:
        parts = (*read[head_types.PRE_TRAINING], *language_model, "next_sentence_head")
        heads[head_types.PRE_TRAINING] = parts
    return EncoderFamily(
        spec=spec,
        module=Transformer,
        inputs=tuple(inputs),
        heads={head_type: parts for head_type, parts in heads.items() if head_type not in without},
        scopes=SCOPES,
        poolers=poolers,
        token_head=token_head,
        unbiased=unbiased,
        context_norm=context_norm,
        empty_cache=None if spec.positions == "disentangled" else empty_cache,
    )


def _same_for_all_text_heads(row: PoolerSpec) -> dict[str, PoolerSpec]:
    """The same for all kinds of models of whole texts."""
    return dict.fromkeys(head_types.OF_WHOLE_TEXTS, row)


_POOLER = PoolerSpec("pooler", "tanh")
_WITH_POOLER = _same_for_all_text_heads(_POOLER) | {head_types.ENCODER: _POOLER}
_OF_ROBERTA = PoolerSpec("classifier_dense", "tanh", dropout=True)
_OF_ELECTRA = PoolerSpec("classifier_dense", "gelu", dropout=True)
_TOKENS = {name: TEXT[name] for name in ("input_ids", "input_mask")}
_ROBERTA = _WITH_POOLER | {head_types.SEQUENCE_CLASSIFICATION: _OF_ROBERTA}
_gpt = partial(
    _family,
    poolers=_same_for_all_text_heads(PoolerSpec("last_token")),
    inputs=_TOKENS | SEGMENT_IDS,
    without=(head_types.MASKED_LM, head_types.REPLACED_TOKENS),
    unbiased=head_types.OF_WHOLE_TEXTS,
)

PRESETS = (
    _family(BertSpec, _WITH_POOLER | {head_types.PRE_TRAINING: _POOLER}),
    _family(
        ModernBertSpec,
        _same_for_all_text_heads(PoolerSpec("pooler", "hidden_act", use_bias=False, norm=True)),
        inputs=_TOKENS | SEGMENT_IDS,
        token_head=True,
    ),
    _family(
        EuroBertSpec,
        _same_for_all_text_heads(PoolerSpec("classifier_dense", "gelu")),
        inputs=_TOKENS | SEGMENT_IDS,
    ),
    _family(NeoBertSpec, _same_for_all_text_heads(_OF_ROBERTA), inputs=_TOKENS | SEGMENT_IDS),
    *(_family(spec, _ROBERTA) for spec in (RobertaSpec, XlmRobertaSpec, CamembertSpec)),
    _family(
        ElectraSpec,
        {
            head_types.SEQUENCE_CLASSIFICATION: _OF_ELECTRA,
            head_types.MULTIPLE_CHOICE: PoolerSpec("summary", "gelu"),
        },
    ),
    _family(
        DebertaV2Spec,
        _same_for_all_text_heads(PoolerSpec("pooler", "gelu")),
        inputs=_TOKENS | SEGMENT_IDS,
        context_norm=True,
    ),
    _family(
        DistilBertSpec,
        _same_for_all_text_heads(PoolerSpec("pre_classifier", "relu")),
        inputs=_TOKENS | SEGMENT_IDS | POSITION_IDS,
    ),
    _gpt(GptSpec),
    _gpt(Gpt2Spec),
    _family(
        XlmSpec,
        _same_for_all_text_heads(PoolerSpec("one_token")),
        inputs=_TOKENS | SEGMENT_IDS | POSITION_IDS | LANGUAGE_IDS,
    ),
)
