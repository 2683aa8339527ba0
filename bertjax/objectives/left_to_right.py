"""Every token of one span from those before it (Table 5, "LTR & No NSP")."""

from bertjax.base.fields import DOCUMENTS
from bertjax.encoders import kinds
from bertjax.examples.corruption import NextTokens
from bertjax.examples.layout import SINGLE_SPANS
from bertjax.examples.packed_layout import PACKED_DOCUMENTS
from bertjax.objectives.token_prediction import TokenPrediction


class LeftToRight(TokenPrediction):
    """A language model."""

    name = "left_to_right"
    layout = SINGLE_SPANS
    causal = True
    kind = kinds.CAUSAL_LM
    targets = ("target_ids", "target_weights")

    def corruption(self, rule):
        """Nothing is hidden."""
        del rule
        return NextTokens()


class PackedLeftToRight(LeftToRight):
    """The same in rows of packed documents."""

    layout = PACKED_DOCUMENTS
    named_inputs = tuple(DOCUMENTS)


LEFT_TO_RIGHT = LeftToRight()
PACKED_LEFT_TO_RIGHT = PackedLeftToRight()
