"""Every token is predicted from those before it (Table 5, "LTR & No NSP")."""

import dataclasses

from bertjax.data.examples.corruption import Corruption, NextTokens
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders import head_types
from bertjax.objectives.token_prediction import TokenPrediction


@dataclasses.dataclass(frozen=True)
class LeftToRight(TokenPrediction):
    """A language model."""

    name = "left_to_right"
    causal = True
    head_type = head_types.CAUSAL_LM
    targets = ("target_ids", "target_weights")

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """Nothing is masked."""
        del rule, microbatches
        return NextTokens()
