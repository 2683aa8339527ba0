"""The specs of GPT and GPT-2: BERT's architecture, read from left to right."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.bert.spec import SIZES as BERT_SIZES
from bertjax.models.encoders.bert.spec import BertSpec


@dataclasses.dataclass(frozen=True)
class GptSpec(BertSpec):
    """GPT (Radford et al., 2018, section 4.1): BERT's blocks, and no token types.

    Raises:
      ValueError: as `BertSpec`; or a model that reads in both directions.
    """

    encoder: ClassVar[str] = "openai-gpt"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        name: BERT_SIZES[name] for name in ("tiny", "mini", "base")
    }
    type_vocab_size: ClassVar[int] = 0  # type: ignore[misc]  # a field of other specs

    vocab_size: int = 40_478
    hidden_act: str = "gelu_tanh"
    layer_norm_eps: float = 1e-5
    causal: bool = True

    def __post_init__(self):
        super().__post_init__()
        if not self.causal:
            raise ValueError(
                f"causal=False: {self.encoder} reads left to right only: set "
                "config.objective='left_to_right', or choose another config.model.encoder"
            )

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`; no layer is before the decoder."""
        transform = predicted / length * self.hidden_size**2
        return super().flops_per_token(length, predicted, context) - 6.0 * transform


@dataclasses.dataclass(frozen=True)
class Gpt2Spec(GptSpec):
    """GPT-2 (Radford et al., 2019, section 2.3 and Table 2): GPT with the norm before each part."""

    encoder: ClassVar[str] = "gpt2"
    norm_first: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "tiny": BERT_SIZES["tiny"],
        "mini": BERT_SIZES["mini"],
        "small": BERT_SIZES["base"],
        "medium": BERT_SIZES["large"],
        "large": (36, 1280, 20, 5120),
        "xl": (48, 1600, 25, 6400),
    }

    vocab_size: int = 50_257
    max_position_embeddings: int = 1024

    @property
    def residual_range(self) -> float:
        """See `BertSpec`; smaller for deeper models."""
        return self.initializer_range / (2 * self.num_hidden_layers) ** 0.5
