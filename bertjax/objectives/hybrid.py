"""Left to right in some rows of a batch, masked tokens in the others (GPT-BERT, arXiv 2410.24159).

One set of parameters learns both. Unlike in GPT-BERT, a masked token is predicted at its own place,
not at the one before it, so that the model is opened and exported as any other.
"""

import dataclasses

import jax
import jax.numpy as jnp

from bertjax.base.limits import Count, require
from bertjax.data.examples.corruption import Corruption, MaskedInSomeRows
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.head_specs import text_inputs
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.objectives.token_prediction import token_values
from bertjax.training.model import Arrays, Model, Params, Part
from bertjax.training.objective import LossWeights, Rngs
from bertjax.training.step import join_rows, split_rows

CAUSAL = "causal"


@dataclasses.dataclass(frozen=True)
class Hybrid(MaskedLM):
    """Both objectives at once; what is minimized is the mean of their losses over the rows.

    Attributes:
      causal_rows: how many rows of each group are read left to right. GPT-BERT has 15 of 16.
      group: the rows of a group; those of a batch must divide into groups.
    """

    causal_rows: Count = 15
    group: Count = 16

    name = "hybrid"
    others = {CAUSAL: head_types.CAUSAL_LM}
    columns = (*MaskedLM.columns, "causal_loss", "causal_accuracy")

    def __post_init__(self):
        super().__post_init__()
        problem = f"must be above 0, and less than group={self.group}"
        require(self.causal_rows < self.group, self, "causal_rows", problem)

    @property
    def row_group(self) -> int:
        return self.group

    @property
    def causal_share(self) -> float:
        """The share of the rows that are read left to right."""
        return self.causal_rows / self.group

    @property
    def loss_weights(self) -> dict[str, float]:
        """The shares of the rows."""
        share = self.causal_share
        return super().loss_weights | {self.minimized: 1 - share, "causal_loss": share}

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """The first rows of each group stay as they are; tokens of the others are masked."""
        return MaskedInSomeRows(rule, self.causal_rows, self.group, microbatches)

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that the encoder can read left to right."""
        super().check(spec)
        dataclasses.replace(spec, causal=True)

    def model(self, spec: EncoderSpec) -> Model:
        """One set of parameters, that of a masked LM, and two ways to compute with it."""
        inputs = text_inputs(spec, B=1, S=8)
        masked = Part(self.module(spec), inputs)
        causal = self.module(dataclasses.replace(spec, causal=True))
        return Model({"": masked, CAUSAL: Part(causal, inputs)})

    def _parts(self, batch: Arrays) -> tuple[Arrays, Arrays]:
        """The rows with masked tokens, and those that are read left to right."""
        groups = {name: split_rows(x, self.group) for name, x in batch.items()}
        masked = {name: join_rows(x[self.causal_rows :]) for name, x in groups.items()}
        return masked, {name: join_rows(x[: self.causal_rows]) for name, x in groups.items()}

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The outputs "masked_lm" [B', P, V] of rows with masked tokens; "next" [B - B', S, V]."""
        masked, causal = self._parts(batch)
        causal = {name: x for name, x in causal.items() if name != "masked_lm_positions"}
        return {
            **model(params, masked, rngs.dropout(0)),
            "next": model(params, causal, rngs.dropout(1), CAUSAL)["masked_lm"],
        }

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """1 on each token that is predicted."""
        masked, causal = self._parts(batch)
        return super().weights(masked) | {"causal_loss": causal["target_weights"]}

    def counts(self, batch: Arrays) -> dict[str, jax.Array]:
        """The counts of all rows: a whole batch has other groups than its microbatches."""
        weights = MaskedLM.weights(self, batch) | {"causal_loss": batch["target_weights"]}
        return {name: jnp.sum(weights[name]) for name in self.loss_weights}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """The loss and the accuracy of both."""
        masked, causal = self._parts(batch)
        of_next = token_values(outputs["next"], causal["target_ids"])
        return super().values(outputs, masked) | {
            "causal_loss": {
                "causal_loss": of_next["mlm_loss"],
                "causal_accuracy": of_next["mlm_accuracy"],
            }
        }

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """The mean over the rows: in those left to right, all tokens are predicted."""
        share = self.causal_share
        masked = spec.flops_per_token(length, predicted, context)
        return share * spec.flops_per_token(length, length, context) + (1 - share) * masked
