"""The base class of the objectives that predict tokens."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertjax.base.limits import Weight, check_limits, require
from bertjax.data.examples.layout import SINGLE_SPANS, TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.packed_layout import PACKED_DOCUMENTS
from bertjax.data.examples.sentence_layout import DOC_SENTENCES, FULL_SENTENCES
from bertjax.data.examples.stream_layout import STREAM
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import cross_entropy, entropy, label_logit
from bertjax.objectives.objective import PretrainingObjective
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights

PACKED, CONTINUED = "packed", "continued"


@dataclasses.dataclass(frozen=True)
class TokenPrediction(PretrainingObjective):
    """Some tokens are predicted by the masked-LM head; "mlm_loss" is the mean loss of a token.

    Attributes:
      text: how text fills a row: "spans", one span of a document; "packed", several documents,
        each of which sees only itself (also `config.packed=True`); "full_sentences", whole
        sentences also of several documents, which see each other, with a separator between
        documents; "doc_sentences", whole sentences of one document (RoBERTa, section 4.2);
        "stream", the documents one after the other, cut into full rows without [CLS] and [SEP]
        (GPT-2); or, of "left_to_right" alone, "continued", rows of the stream that each go on in
        the same row of the next batch. Rows of sentences are cut once, and come in another order in
        every epoch.
      z_loss: the weight of the mean of log(Z)^2, Z the sum over the vocabulary of exp(logit), which
        keeps the logits near 0 (arXiv 2204.02311, section 5.1: 1e-4); 0: none.
      focal: the power of (1 - p) that weights each token's loss, p the probability of the right
        token, so that hard tokens count for more (arXiv 1708.02002, equation 4); 0: all count
        alike. "mlm_loss" is not weighted; "focal_loss" is minimized in its place.
      targets: the names of the arrays of a batch with the tokens that are predicted, and with the
        weight of each.
    """

    text: str = "spans"
    z_loss: Weight = 0.0
    focal: Weight = 0.0

    columns: ClassVar[tuple[str, ...]] = ("mlm_loss", "mlm_perplexity", "mlm_accuracy")
    main_metric, accuracy = "mlm_loss", "mlm_accuracy"
    advice = (
        "Usual causes: a learning rate that is too high or too low for so many layers, a warm-up "
        "that is too short, or few updates. Try a third of the rate, and three times the rate; or "
        "config.model.encoder='modernbert', which leaves it sooner"
    )
    layouts: ClassVar[Mapping[str, TextLayout]] = {
        "spans": SINGLE_SPANS,
        PACKED: PACKED_DOCUMENTS,
        "full_sentences": FULL_SENTENCES,
        "doc_sentences": DOC_SENTENCES,
        "stream": STREAM,
    }
    targets: ClassVar[tuple[str, str]]

    def __post_init__(self):
        known = f"must be one of {', '.join(self.layouts)}"
        require(self.text in self.layouts, self, "text", known)
        check_limits(self)
        # Below 1, a token with p = 1 has no gradient.
        require(not 0 < self.focal < 1, self, "focal", "must be 0, or at least 1")

    @property
    def minimized(self) -> str:
        """The loss of the predicted tokens."""
        return "focal_loss" if self.focal else "mlm_loss"

    @property
    def loss_weights(self) -> dict[str, float]:
        return {self.minimized: 1.0} | ({"z_loss": self.z_loss} if self.z_loss else {})

    @property
    def layout(self) -> TextLayout:
        return self.layouts[self.text]

    def module(self, spec: EncoderSpec) -> nn.Module:
        """The encoder with the masked-LM head."""
        return PreTrainingModel(spec, next_sentence=False)

    def unigram_baseline(self, frequencies: np.ndarray, rule: MaskingRule) -> float:
        """The entropy of the words."""
        del rule
        return entropy(frequencies)

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """1 on each token that is predicted, and 0 on the places that fill up a row."""
        return {name: batch[self.targets[1]] for name in ("mlm_loss", "focal_loss", "z_loss")}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Compares "masked_lm" [B, P, V] with the tokens [B, P]."""
        logits = outputs["masked_lm"]
        values = {"mlm_loss": token_values(logits, batch[self.targets[0]])}
        if self.focal:
            loss = values["mlm_loss"]["mlm_loss"]
            values["focal_loss"] = {"focal_loss": (-jnp.expm1(-loss)) ** self.focal * loss}
        if self.z_loss:
            values["z_loss"] = {"z_loss": jnp.square(jax.nn.logsumexp(logits, axis=-1))}
        return values

    def derived(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The perplexity: exp(loss), which stays finite; exp(710) would overflow."""
        return {"mlm_perplexity": math.exp(min(metrics["mlm_loss"], 700.0))}


def token_values(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    """The loss (nats) and the accuracy of each predicted token."""
    correct = label_logit(logits, labels) == logits.max(-1)
    return {"mlm_loss": cross_entropy(logits, labels), "mlm_accuracy": correct}
