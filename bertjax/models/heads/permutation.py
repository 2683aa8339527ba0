"""The model that predicts tokens in any order (XLNet, arXiv 1906.08237)."""

from collections.abc import Mapping

import jax

from bertjax.models.heads.memory import remembered
from bertjax.models.heads.pretraining import PreTrainingModel


class PermutationModel(PreTrainingModel):
    """An encoder of two streams with the masked-LM head."""

    next_sentence: bool = False
    reuse: int = 0  # so many of the first tokens of a row are remembered in the next batch
    memory: int = 0  # how many tokens are remembered, of this row and before it; 0: none

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Logits "masked_lm" [B, P, V] of the predicted tokens, and "memory" [B, L, M, D].

        Without "order" int [B, S] (`bertjax.base.fields.ORDER`), every token is predicted by the
        content stream, which sees it, as in XLNetLMHeadModel of transformers.
        """
        if "order" not in inputs:
            return super().__call__(inputs, deterministic=deterministic)
        vectors, states = self.encoder.two_streams(inputs, deterministic=deterministic)
        outputs = {"masked_lm": self.masked_lm(vectors, self.encoder.token_embedding)}
        if self.memory:
            outputs["memory"] = remembered(inputs["memory"], states, self.reuse)
        return outputs
