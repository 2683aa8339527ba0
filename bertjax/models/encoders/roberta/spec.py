"""The specs of RoBERTa, XLM-RoBERTa and CamemBERT, which are one architecture."""

import dataclasses
from typing import ClassVar

from bertjax.models.encoders.bert.spec import BertSpec


@dataclasses.dataclass(frozen=True)
class RobertaSpec(BertSpec):
    """BERT with one token type, and positions that begin after the id of the padding.

    The sizes are BERT's (arXiv 1907.11692, section 5). `max_position_embeddings` is the longest
    sequence, 512; config.json of transformers has the rows of the table there, 514.

    Attributes:
      pad_token_id: the id of the padding in the vocabulary; positions begin at the next number.
    """

    encoder: ClassVar[str] = "roberta"

    vocab_size: int = 50_265
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1

    @property
    def position_rows(self) -> int:
        """See `BertSpec`."""
        return self.max_position_embeddings + self.pad_token_id + 1


@dataclasses.dataclass(frozen=True)
class XlmRobertaSpec(RobertaSpec):
    """XLM-RoBERTa (arXiv 1911.02116)."""

    encoder: ClassVar[str] = "xlm-roberta"

    vocab_size: int = 250_002


@dataclasses.dataclass(frozen=True)
class CamembertSpec(RobertaSpec):
    """CamemBERT (arXiv 1911.03894)."""

    encoder: ClassVar[str] = "camembert"

    vocab_size: int = 32_005
