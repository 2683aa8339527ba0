"""The spec of one XLNet: BERT's sizes, with positions that are relative."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.models.encoders.bert.spec import BertSpec


@dataclasses.dataclass(frozen=True)
class XlnetSpec(BertSpec):
    """XLNet (arXiv 1906.08237), whose attention has biases of its own in each layer ("untied").

    It has no table of positions and none of token types: a token knows how far another is, and
    whether both are of one text. So `max_position_embeddings` is only the longest sequence that
    the programs take.

    Attributes:
      type_vocab_size: A is 0, B is 1, and <cls> is 2.

    Raises:
      ValueError: as `BertSpec`; or an odd width, which no sinusoids have.
    """

    encoder: ClassVar[str] = "xlnet"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        name: BERT_SIZES[name] for name in ("tiny", "mini", "small", "base", "large")
    }
    type_vocab_size: ClassVar[int] = 3  # type: ignore[misc]  # a field of other specs

    vocab_size: int = 32_000

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size={self.hidden_size}: must be even")

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`.

        Scores are of contents and of distances. The products of the distances with their kernel
        are made once for a batch, and do not count.
        """
        of_bert = super().flops_per_token(length, predicted, context)
        width = self.hidden_size
        distances = self.num_hidden_layers * width * (length if context is None else context)
        return of_bert + 6.0 * (distances - predicted / length * width * width)
