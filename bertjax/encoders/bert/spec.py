"""The spec of one BERT: its sizes by name, and how it is computed."""

import dataclasses
from typing import Any, ClassVar, Self

from bertjax.encoders.computation import AttentionComputation, check_choice, check_shares

# (layers, hidden size, attention heads); the feed-forward width is 4 times the hidden size.
SIZES = {
    "tiny": (2, 128, 2),  # tiny to medium: Turc et al. (arXiv 1908.08962), Table 1
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),  # base and large: BERT, section 3
    "large": (24, 1024, 16),
    "L3_H768_A12": (3, 768, 12),  # the rows of BERT's Table 6
    "L6_H768_A3": (6, 768, 3),
    "L6_H768_A12": (6, 768, 12),
    "L12_H768_A12": (12, 768, 12),
    "L12_H1024_A16": (12, 1024, 16),
    "L24_H1024_A16": (24, 1024, 16),
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

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "hidden_act", ("gelu", "gelu_tanh"))
        check_shares(self, "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")

    @classmethod
    def named(cls, size: str, **fields: Any) -> Self:
        """A spec by its size's name (a key of `SIZES`), with other fields as given."""
        if size not in SIZES:
            raise ValueError(f"size={size!r}: must be one of {', '.join(SIZES)}")
        layers, width, heads = SIZES[size]
        sizes = dict(
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=4 * width,
        )
        return cls(**(sizes | fields))

    @property
    def embedding_size(self) -> int:
        """E, the width of the embeddings."""
        return self.hidden_size

    @property
    def position_rows(self) -> int:
        """The rows of the table of positions."""
        return self.max_position_embeddings

    def flops_per_token(self, length: int, predicted: int) -> float:
        """See `bertjax.encoders.contract.EncoderSpec`."""
        layers, width, inner = self.num_hidden_layers, self.hidden_size, self.intermediate_size
        products = layers * (4 * width * width + 2 * width * inner)
        attention = layers * 2 * width * length
        head = predicted / length * (width * self.vocab_size + width * width)
        return 6.0 * (products + attention + head)
