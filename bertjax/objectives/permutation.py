"""Tokens predicted in a random order (XLNet, arXiv 1906.08237), with a memory of earlier text."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base.limits import Count, CountOrNone, Meta
from bertjax.data.examples.continued_layout import ContinuedStream
from bertjax.data.examples.corruption import Corruption
from bertjax.data.examples.layout import TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.permutation import PermutedTokens
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.permutation import PermutationModel
from bertjax.objectives.token_prediction import CONTINUED, TokenPrediction
from bertjax.training.model import Arrays, Model
from bertjax.training.objective import LossWeights

_THIRDS = ("early_loss", "middle_loss", "late_loss")


@dataclasses.dataclass(frozen=True)
class PermutationLM(TokenPrediction):
    """Some tokens are predicted, each from those before it in the order of its row.

    The metrics early_loss, middle_loss and late_loss are the loss of the tokens in the first,
    second and last third of the order: the later, the more of the others they see.

    Attributes:
      text: "continued", the stream of all documents, which goes on in the same row of the next
        batch.
      one_in: K: one in K tokens is predicted (section 2.3: 6), in spans of 1 to 5 tokens that begin
        with a word.
      reuse: the tokens by which a row moves on from batch to batch (zihangdai/xlnet: half of the
        length).
      memory: the tokens that the model remembers of the text before a row (zihangdai/xlnet: 384 of
        a length of 512); 0: none.
    """

    text: str = CONTINUED
    one_in: Annotated[int, Meta(ge=2)] = 6
    reuse: Count = 256
    memory: CountOrNone = 256

    name = "permutation"
    layouts: ClassVar[Mapping[str, TextLayout]] = {CONTINUED: ContinuedStream(256, 256)}
    head_type = head_types.PERMUTATION_LM
    targets = ("masked_lm_ids", "masked_lm_weights")
    columns = (*TokenPrediction.columns, *_THIRDS)

    @property
    def layout(self) -> TextLayout:
        """A stream that goes on from batch to batch."""
        return ContinuedStream(self.reuse, self.memory)

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """Nothing is masked: an order says what is seen."""
        del rule, microbatches
        return PermutedTokens(self.one_in, self.reuse)

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that the encoder reads in both directions."""
        super().check(spec)
        if spec.causal:
            raise ValueError(
                f"objective={self.name!r} and model.causal=True: the order is given: leave it out"
            )

    def module(self, spec: EncoderSpec) -> nn.Module:
        """The encoder with the masked-LM head."""
        return PermutationModel(spec, reuse=self.reuse, memory=self.memory)

    def carried(self, model: Model) -> dict[str, jax.ShapeDtypeStruct]:
        """What each layer has read of the tokens before a row, [L, M, D]."""
        if not self.memory:
            return {}
        spec = model.parts[""].module.spec  # type: ignore[attr-defined]  # of `PermutationModel`
        shape = spec.num_hidden_layers, self.memory, spec.hidden_size
        return {"memory": jax.ShapeDtypeStruct(shape, spec.compute_dtype)}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Also those of each third of the order."""
        weights = super().weights(batch)
        places = batch["masked_lm_positions"]
        number = jnp.take_along_axis(batch["order"], places, axis=1) - 1
        in_first, rest = places < self.reuse, batch["order"].shape[1] - self.reuse
        rank = jnp.where(in_first, number, number - 1 - self.reuse)
        third = rank * len(_THIRDS) // jnp.where(in_first, self.reuse, rest)
        first_targets = batch[self.targets[1]]
        return weights | {name: first_targets * (third == i) for i, name in enumerate(_THIRDS)}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Also the loss in each third of the order."""
        values = super().values(outputs, batch)
        loss = values["mlm_loss"]["mlm_loss"]
        return values | {name: {name: loss} for name in _THIRDS}

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """Two streams, of which that of the predicted tokens makes no keys and values."""
        seen = float(length + self.memory)
        stream = spec.flops_per_token(length, 0, seen)
        stream -= 6.0 * spec.num_hidden_layers * 2 * spec.hidden_size**2
        return spec.flops_per_token(length, predicted, seen) + predicted / length * stream
