"""The spec of one ELECTRA: BERT's, with embeddings of a width of their own."""

import dataclasses
from typing import Any, ClassVar, Self

from bertjax.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.encoders.bert.spec import BertSpec

# (layers, hidden size, attention heads, width of the embeddings); the feed-forward width is 4 times
# the hidden size.
SIZES = {
    "tiny": (*BERT_SIZES["tiny"], 128),
    "mini": (*BERT_SIZES["mini"], 128),
    "small": (12, 256, 4, 128),  # small to large: arXiv 2003.10555, Table 6
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

    embedding_size: int = 128

    @classmethod
    def named(cls, size: str, **fields: Any) -> Self:
        """A spec by its size's name (a key of `SIZES`), with other fields as given."""
        if size not in SIZES:
            raise ValueError(f"size={size!r}: must be one of {', '.join(SIZES)}")
        layers, width, heads, embedding_size = SIZES[size]
        sizes = dict(
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            embedding_size=embedding_size,
        )
        return cls(**(sizes | fields))

    def flops_per_token(self, length: int, predicted: int) -> float:
        """See `bertjax.encoders.contract.EncoderSpec`."""
        width, inner, embeddings = self.hidden_size, self.intermediate_size, self.embedding_size
        layer = 4 * width * width + 2 * width * inner + 2 * width * length
        projection = embeddings * width if embeddings != width else 0
        head = predicted / length * (embeddings * self.vocab_size + width * embeddings)
        return 6.0 * (self.num_hidden_layers * layer + projection + head)
