"""Every token is predicted from those before it (Table 5, "LTR & No NSP")."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax
from flax import linen as nn

from bertjax.base.limits import CountOrNone, require
from bertjax.data.examples.continued_layout import CONTINUED_TOKENS
from bertjax.data.examples.corruption import Corruption, NextTokens
from bertjax.data.examples.layout import TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.memory import MemoryModel, memory_shapes
from bertjax.objectives.token_prediction import CONTINUED, TokenPrediction
from bertjax.training.model import Model


@dataclasses.dataclass(frozen=True)
class LeftToRight(TokenPrediction):
    """A language model.

    Attributes:
      memory: the tokens that the model remembers of the text before a row (Transformer-XL, arXiv
        1901.02860); 0: none. It needs the text "continued".
    """

    memory: CountOrNone = 0

    name = "left_to_right"
    causal = True
    layouts: ClassVar[Mapping[str, TextLayout]] = {
        **TokenPrediction.layouts,
        CONTINUED: CONTINUED_TOKENS,
    }
    head_type = head_types.CAUSAL_LM
    targets = ("target_ids", "target_weights")

    def __post_init__(self):
        super().__post_init__()
        fits = not self.memory or self.text == CONTINUED
        require(fits, self, "memory", f"needs text={CONTINUED!r}, whose rows go on")

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """Nothing is masked."""
        del rule, microbatches
        return NextTokens()

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that the encoder reads a memory, if there is one."""
        super().check(spec)
        if self.memory and not family_of(spec).reads_memory:
            raise ValueError(
                f"objective.memory={self.memory}: {spec.encoder} has no memory: set it to 0, or "
                "config.model.encoder='transfo-xl'"
            )

    def module(self, spec: EncoderSpec) -> nn.Module:
        """With a memory, the model also returns that of the next row."""
        return MemoryModel(spec) if self.memory else super().module(spec)

    def carried(self, model: Model) -> dict[str, jax.ShapeDtypeStruct]:
        """The memory of a row, if there is one."""
        if not self.memory:
            return {}
        spec = model.parts[""].module.spec  # type: ignore[attr-defined]  # of `MemoryModel`
        return memory_shapes(spec, self.memory)

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """A token also sees the memory."""
        if self.memory:
            context = float(length + self.memory)
        return super().flops_per_token(spec, length, predicted, context)
