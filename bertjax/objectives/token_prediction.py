"""The base class of the objectives that predict tokens."""

import math

import jax
import numpy as np

from bertjax.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import cross_entropy, label_logit
from bertjax.objectives.objective import PretrainingObjective


class TokenPrediction(PretrainingObjective):
    """Some tokens are predicted by the masked-LM head; "mlm_loss" is the mean loss of a token.

    Attributes:
      targets: the names of the arrays of a batch with the tokens that are predicted, and with the
        weight of each.
    """

    loss_weights = {"mlm_loss": 1.0}
    columns = ("mlm_loss", "mlm_perplexity", "mlm_accuracy")
    targets: tuple[str, str]

    def model(self, spec):
        """The encoder with the masked-LM head."""
        return PreTrainingModel(spec, next_sentence=False)

    def loss_without_context(self, frequencies, rule):
        """The entropy of the words."""
        del rule
        return float(-(frequencies * np.log(np.where(frequencies > 0, frequencies, 1.0))).sum())

    def weights(self, batch):
        """1 on each token that is predicted, and 0 on the places that fill up a row."""
        return {"mlm_loss": batch[self.targets[1]]}

    def values(self, outputs, batch):
        """Compares "masked_lm" [B, P, V] with the tokens [B, P]."""
        return {"mlm_loss": token_values(outputs["masked_lm"], batch[self.targets[0]])}

    def derived(self, metrics):
        """The perplexity: exp(loss), which stays finite; exp(710) would overflow."""
        return {"mlm_perplexity": math.exp(min(metrics["mlm_loss"], 700.0))}


def token_values(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """The loss (nats) and the accuracy of each predicted token."""
    correct = label_logit(logits, labels) == logits.max(-1)
    return {"mlm_loss": cross_entropy(logits, labels), "mlm_accuracy": correct}
