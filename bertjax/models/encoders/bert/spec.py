"""The spec of one BERT: its sizes by name, and how it is computed."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.computation import AttentionComputation, check_choice, check_shares

# (layers, hidden size, attention heads, feed-forward width)
SIZES = {
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


@dataclasses.dataclass(frozen=True)
class BertArchitecture:
    """The function that an encoder computes; the names are those of `bert_config.json`."""

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"  # "gelu": erf, the paper's; "gelu_tanh": google-research/bert's code
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    causal: bool = False  # left-to-right attention, for Table 5's "LTR"


@dataclasses.dataclass(frozen=True)
class BertSpec(AttentionComputation, BertArchitecture):
    """The architecture of one BERT, and how it is computed.

    Raises:
      ValueError: a value does not fit; the message names the field.
    """

    encoder: ClassVar[str] = "bert"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES
    norm_first: ClassVar[bool] = False  # before attention and feed-forward, not after them

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "hidden_act", ("gelu", "gelu_tanh"))
        check_shares(self, "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")

    @property
    def embedding_size(self) -> int:
        """E, the width of the embeddings."""
        return self.hidden_size

    @property
    def residual_range(self) -> float:
        """The standard deviation of fresh kernels whose products are added to the residual."""
        return self.initializer_range

    @property
    def position_rows(self) -> int:
        """The rows of the table of positions."""
        return self.max_position_embeddings

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`."""
        layers, width, inner = self.num_hidden_layers, self.hidden_size, self.intermediate_size
        products = layers * (4 * width * width + 2 * width * inner)
        attention = layers * 2 * width * (length if context is None else context)
        head = predicted / length * (width * self.vocab_size + width * width)
        return 6.0 * (products + attention + head)
