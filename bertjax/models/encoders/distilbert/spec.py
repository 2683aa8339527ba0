"""The spec of one DistilBERT: BERT's, without token types."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.models.encoders.bert.spec import BertSpec

# Half of the layers of a BERT of that name (arXiv 1910.01108, section 3, "Student architecture").
SIZES = {name: (max(1, layers // 2), *others) for name, (layers, *others) in BERT_SIZES.items()}


@dataclasses.dataclass(frozen=True)
class DistilBertSpec(BertSpec):
    """BERT without token types (arXiv 1910.01108, section 3); it has no pooler, either."""

    encoder: ClassVar[str] = "distilbert"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES
    type_vocab_size: ClassVar[int] = 0  # type: ignore[misc]  # a constant here
    layer_norm_eps: ClassVar[float] = 1e-12  # type: ignore[misc]  # transformers has no other

    num_hidden_layers: int = 6
