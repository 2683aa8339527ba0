"""The spec of one ELECTRA: BERT's, with embeddings of a width of their own."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.models.encoders.bert.spec import BertSpec

# (layers, hidden size, attention heads, feed-forward width, width of the embeddings)
SIZES = {
    "tiny": (*BERT_SIZES["tiny"], 128),
    "mini": (*BERT_SIZES["mini"], 128),
    "small": (12, 256, 4, 1024, 128),  # small to large: arXiv 2003.10555, Table 6
    "base": (*BERT_SIZES["base"], 768),
    "large": (*BERT_SIZES["large"], 1024),
}


@dataclasses.dataclass(frozen=True)
class ElectraSpec(BertSpec):
    """BERT, in which a dense layer makes the embeddings as wide as the layers (arXiv 2003.10555).

    So a small generator and a wide discriminator can share their embeddings.

    Attributes:
      embedding_size: E, the width of the embeddings.
    """

    encoder: ClassVar[str] = "electra"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES
    size_fields: ClassVar[tuple[str, ...]] = (*BertSpec.size_fields, "embedding_size")

    embedding_size: int = 128

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`."""
        width, inner, embeddings = self.hidden_size, self.intermediate_size, self.embedding_size
        seen = length if context is None else context
        layer = 4 * width * width + 2 * width * inner + 2 * width * seen
        projection = embeddings * width if embeddings != width else 0
        head = predicted / length * (embeddings * self.vocab_size + width * embeddings)
        return 6.0 * (self.num_hidden_layers * layer + projection + head)
