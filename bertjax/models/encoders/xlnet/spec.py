"""The spec of one XLNet: BERT's sizes, with positions that are relative."""

from bertjax.models.encoders.presets import SIZES, BertSpec
from bertjax.models.encoders.spec import TransformerSpec


class XlnetSpec(
    TransformerSpec, fields=(name for name in BertSpec.fields if name != "type_vocab_size")
):
    """XLNet (arXiv 1906.08237), whose attention has biases of its own in each layer ("untied").

    It has no table of positions and none of token types: a token knows how far another is, and
    whether both are of one text. So `max_position_embeddings` is only the longest sequence that
    the programs take; of the token types, A is 0, B is 1, and <cls> is 2.
    """

    encoder = "xlnet"
    sizes = {name: SIZES[name] for name in ("tiny", "mini", "small", "base", "large")}
    type_vocab_size = 3
    vocab_size = 32_000
    lm_head = "bias"

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size={self.hidden_size}: must be even")

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """Scores of contents and distances; the distances' product, one a batch, is left out."""
        seen = length if context is None else context
        distances = 6.0 * self.num_hidden_layers * self.hidden_size * seen
        return super().flops_per_token(length, predicted, context) + distances
