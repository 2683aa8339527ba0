"""The spec of one XLM: BERT's, with token types that are languages."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.models.encoders.bert.spec import BertSpec

SIZES = {
    "tiny": BERT_SIZES["tiny"],
    "mini": BERT_SIZES["mini"],
    "small": BERT_SIZES["small"],
    "base": (12, 1024, 8, 4096),  # arXiv 1901.07291, section 5.1
    "large": (12, 2048, 16, 8192),  # the published xlm-mlm-en-2048
}


@dataclasses.dataclass(frozen=True)
class XlmSpec(BertSpec):
    """BERT with an embedding of each token's language in the place of token types.

    Attributes:
      type_vocab_size: the number of languages; 0: no embeddings of them. A batch without
        `language_ids` adds none.

    Raises:
      ValueError: as `BertSpec`; or embeddings of a single language.
    """

    encoder: ClassVar[str] = "xlm"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES

    vocab_size: int = 30_145
    hidden_size: int = 1024
    num_attention_heads: int = 8
    intermediate_size: int = 4096
    type_vocab_size: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.type_vocab_size == 1:
            raise ValueError("type_vocab_size=1: the number of languages, at least 2; or 0")

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`; no layer is before the decoder."""
        transform = predicted / length * self.hidden_size**2
        return super().flops_per_token(length, predicted, context) - 6.0 * transform
