"""Masked tokens (section 3.1, Task #1), with and without the next sentence (Task #2; Table 5)."""

import jax.numpy as jnp

from bertjax.base.fields import DOCUMENTS, INPUT
from bertjax.encoders import kinds
from bertjax.examples.corruption import MaskedTokens
from bertjax.examples.layout import PAIRS, SINGLE_SPANS
from bertjax.examples.packed_layout import PACKED_DOCUMENTS
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.token_prediction import TokenPrediction


class MaskedLM(TokenPrediction):
    """Hidden tokens of one span are predicted (Table 5, "No NSP")."""

    name = "masked_lm"
    layout = SINGLE_SPANS
    kind = kinds.MASKED_LM
    inputs = (*INPUT, "masked_lm_positions")
    targets = ("masked_lm_ids", "masked_lm_weights")

    def corruption(self, rule):
        """Tokens or whole words are hidden."""
        return MaskedTokens(rule)

    def loss_without_context(self, frequencies, rule):
        """Less than the entropy of the words, where the predicted token is shown."""
        return rule.loss_without_context(frequencies)


class PackedMaskedLM(MaskedLM):
    """The same in rows of packed documents."""

    layout = PACKED_DOCUMENTS
    named_inputs = tuple(DOCUMENTS)


class MaskedLMNextSentence(MaskedLM):
    """Both tasks of BERT: hidden tokens of two spans, and whether the second follows the first."""

    name = "masked_lm_next_sentence"
    layout = PAIRS
    kind = kinds.PRE_TRAINING
    loss_weights = {"mlm_loss": 1.0, "nsp_loss": 1.0}
    columns = (*MaskedLM.columns, "nsp_loss", "nsp_accuracy")
    warned = "constant next-sentence"

    def model(self, spec):
        """With the masked-LM head, the pooler and the next-sentence head."""
        return PreTrainingModel(spec)

    def weights(self, batch):
        """Adds a weight of 1 for each sequence."""
        return super().weights(batch) | {"nsp_loss": batch["next_sentence_labels"].size}

    def values(self, outputs, batch):
        """Adds "next_sentence" [B, 2]; "nsp_random_answers" counts the answers that B is random."""
        logits, labels = outputs["next_sentence"], batch["next_sentence_labels"]
        answers = logits.argmax(-1)
        next_sentence = {
            "nsp_loss": cross_entropy(logits, labels),
            "nsp_accuracy": (answers == labels).astype(jnp.float32),
            "nsp_random_answers": answers.astype(jnp.float32),
        }
        return super().values(outputs, batch) | {"nsp_loss": next_sentence}

    def warning(self, metrics):
        """Says so where the next-sentence head gave one answer to all it was asked."""
        share = metrics.get("nsp_random_answers")  # older runs do not have it
        if share not in (0.0, 1.0):
            return ""
        answer = "B is random" if share else "B follows A"
        return (
            f"the next-sentence head answers {answer!r} always: its accuracy is only the share of "
            "such examples. That is usual at first. Later, the usual causes are a learning rate "
            "that is too high, a warm-up that is too short, and documents of one sentence, which "
            "have no B that follows A: change these, or set config.objective='masked_lm'"
        )


MASKED_LM = MaskedLM()
PACKED_MASKED_LM = PackedMaskedLM()
MASKED_LM_NEXT_SENTENCE = MaskedLMNextSentence()
