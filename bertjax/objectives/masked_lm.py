"""Masked tokens (section 3.1, Task #1), with and without the next sentence (Task #2; Table 5)."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertjax.base.limits import require
from bertjax.data.examples.corruption import Corruption, MaskedTokens
from bertjax.data.examples.layout import PAIRS, TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.translation_layout import TranslationLayout
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.token_prediction import TokenPrediction
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights

TRANSLATIONS = "translations"


@dataclasses.dataclass(frozen=True)
class MaskedLM(TokenPrediction):
    """Masked tokens are predicted (Table 5, "No NSP").

    Attributes:
      text: as in `TokenPrediction`; or "translations", a text and its translation in a row where
        the source is parallel, and a span elsewhere (`bertjax.data.examples.translation_layout`).
      languages: the codes of the languages in the order of their ids, as "en,sw", for an encoder
        that has an embedding of each; only with "translations".
    """

    languages: str = ""

    name = "masked_lm"
    layouts = {**TokenPrediction.layouts, TRANSLATIONS: TranslationLayout()}
    head_type = head_types.MASKED_LM
    targets = ("masked_lm_ids", "masked_lm_weights")

    def __post_init__(self):
        super().__post_init__()
        names = self.languages.split(",")
        fits = not self.languages or self.text == TRANSLATIONS and len(names) == len(set(names))
        problem = f"must be different codes, as 'en,sw', and needs text={TRANSLATIONS!r}"
        require(fits, self, "languages", problem)

    @property
    def layout(self) -> TextLayout:
        if self.languages:
            return TranslationLayout(tuple(self.languages.split(",")))
        return super().layout

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that the encoder has an embedding of each language."""
        super().check(spec)
        names = self.languages.split(",")
        if self.languages and spec.type_vocab_size != len(names):
            raise ValueError(
                f"model.type_vocab_size={spec.type_vocab_size}: must be {len(names)}, the number "
                f"of objective.languages={self.languages!r}"
            )

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """Tokens or whole words are masked."""
        del microbatches
        return MaskedTokens(rule)

    def unigram_baseline(self, frequencies: np.ndarray, rule: MaskingRule) -> float:
        """It is below the entropy of the words if the rule leaves predicted tokens unchanged."""
        return rule.unigram_baseline(frequencies)


def at_places(batch: Arrays, values: jax.Array, into: jax.Array) -> jax.Array:
    """Puts a value [B, P] of each predicted token at its place into an array [B, S]."""
    length = into.shape[1]
    places = jnp.where(batch["masked_lm_weights"] > 0, batch["masked_lm_positions"], length)
    put = jax.vmap(lambda row, places, values: row.at[places].set(values, mode="drop"))
    return put(into, places, values)


@dataclasses.dataclass(frozen=True)
class MaskedLMNextSentence(MaskedLM):
    """Both tasks of BERT: masked tokens of two spans, and whether the second follows the first.

    Attributes:
      text: "pairs", the spans A and B in a row (section A.2).
    """

    text: str = "pairs"

    name = "masked_lm_next_sentence"
    layouts = {"pairs": PAIRS}
    head_type = head_types.PRE_TRAINING
    columns = (*MaskedLM.columns, "nsp_loss", "nsp_accuracy")
    warned = "constant next-sentence"

    @property
    def loss_weights(self) -> dict[str, float]:
        """Adds that of the next sentence."""
        return super().loss_weights | {"nsp_loss": 1.0}

    def module(self, spec: EncoderSpec) -> nn.Module:
        """With the masked-LM head, the pooler and the next-sentence head."""
        return PreTrainingModel(spec)

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Adds a weight of 1 for each sequence."""
        return super().weights(batch) | {"nsp_loss": batch["next_sentence_labels"].size}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Adds "next_sentence" [B, 2]; "nsp_random_answers" counts the answers that B is random."""
        logits, labels = outputs["next_sentence"], batch["next_sentence_labels"]
        answers = logits.argmax(-1)
        next_sentence = {
            "nsp_loss": cross_entropy(logits, labels),
            "nsp_accuracy": (answers == labels).astype(jnp.float32),
            "nsp_random_answers": answers.astype(jnp.float32),
        }
        return super().values(outputs, batch) | {"nsp_loss": next_sentence}

    def warning(self, metrics: Mapping[str, float]) -> str:
        """Warns if the next-sentence head gives the same answer to every example."""
        share = metrics.get("nsp_random_answers")  # a line of another objective lacks it
        if share not in (0.0, 1.0):
            return ""
        answer = "B is random" if share else "B follows A"
        return (
            f"the next-sentence head answers {answer!r} always: its accuracy is only the share of "
            "such examples. That is usual at first. Later, the usual causes are a learning rate "
            "that is too high, a warm-up that is too short, and documents of one sentence, which "
            "have no B that follows A: change these, or set config.objective='masked_lm'"
        )
