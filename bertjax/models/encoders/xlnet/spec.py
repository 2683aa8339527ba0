"""The spec of one XLNet, and of one Transformer-XL: positions are relative."""

from bertjax.models.encoders.presets import SIZES, BertSpec, check_causal
from bertjax.models.encoders.spec import TransformerSpec


class XlnetSpec(
    TransformerSpec, fields=(name for name in BertSpec.fields if name != "type_vocab_size")
):
    """XLNet (arXiv 1906.08237), whose attention has biases of its own in each layer ("untied").

    It has no table of positions and none of token types: a token knows how far another is, and
    whether both are of one text. So `max_position_embeddings` is only the longest sequence that
    the programs take; of the token types, A is 0, B is 1, and <cls> is 2.

    Attributes:
      two_streams: whether it has a query stream.
      scaled_embeddings: whether a token's embedding is multiplied by the root of the width.
    """

    encoder = "xlnet"
    sizes = {name: SIZES[name] for name in ("tiny", "mini", "small", "base", "large")}
    type_vocab_size = 3
    vocab_size = 32_000
    lm_head = "bias"
    biases_scores = True
    two_streams = True
    scaled_embeddings = False

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size={self.hidden_size}: must be even")

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """Scores of contents and distances; the distances' product, one a batch, is left out."""
        seen = length if context is None else context
        distances = 6.0 * self.num_hidden_layers * self.hidden_size * seen
        return super().flops_per_token(length, predicted, context) + distances


class TransformerXlSpec(XlnetSpec):
    """Transformer-XL (arXiv 1901.02860, section 3), whose memory makes long texts of short rows.

    Its biases of queries are each layer's own, as `untie_r` of kimiyoung/transformer-xl makes them.
    """

    encoder = "transfo-xl"
    sizes = {
        **{name: SIZES[name] for name in ("tiny", "mini")},
        "12l": (12, 512, 8, 2048),  # 12l and 24l: of enwik8, Table 2
        "24l": (24, 1024, 8, 3072),
        "standard": (16, 410, 10, 2100),  # standard and large: of WikiText-103, Table 1
        "large": (18, 1024, 16, 4096),
    }
    choices = {
        **XlnetSpec.choices,
        "hidden_act": ("relu", *XlnetSpec.choices["hidden_act"]),
    }
    vocab_size = 267_735
    type_vocab_size = 0
    hidden_act = "relu"
    attention_probs_dropout_prob = 0.0
    layer_norm_eps = 1e-5
    causal = True
    two_streams = False
    scaled_embeddings = True

    def __post_init__(self):
        super().__post_init__()
        check_causal(self)
