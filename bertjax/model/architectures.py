"""Every model there is, by the name that Hugging Face's classes give it."""

from collections.abc import Callable
from typing import NamedTuple

from flax import linen as nn

from bertjax.model import fine_tuning
from bertjax.model.heads import BertForPreTraining
from bertjax.model.spec import BertSpec


class Architecture(NamedTuple):
    """A model.

    Attributes:
      parts: the top-level names of its parameters.
      build: (spec, number of classes) -> module; only classifiers look at the number.
    """

    parts: tuple[str, ...]
    build: Callable[[BertSpec, int], nn.Module]


ARCHITECTURES = {
    "BertModel": Architecture(
        ("bert", "pooler"),
        lambda spec, _: fine_tuning.BertModel(spec),
    ),
    "BertForPreTraining": Architecture(
        ("bert", "pooler", "masked_lm", "next_sentence_head"),
        lambda spec, _: BertForPreTraining(spec),
    ),
    "BertForMaskedLM": Architecture(
        ("bert", "masked_lm"),
        lambda spec, _: BertForPreTraining(spec, next_sentence=False),
    ),
    "BertLMHeadModel": Architecture(  # the same, reading left to right
        ("bert", "masked_lm"),
        lambda spec, _: BertForPreTraining(spec, next_sentence=False),
    ),
    "BertForSequenceClassification": Architecture(
        ("bert", "pooler", "classifier"),
        fine_tuning.BertForSequenceClassification,
    ),
    "BertForMultipleChoice": Architecture(
        ("bert", "pooler", "classifier"),
        lambda spec, _: fine_tuning.BertForMultipleChoice(spec),
    ),
    "BertForTokenClassification": Architecture(
        ("bert", "classifier"),
        fine_tuning.BertForTokenClassification,
    ),
    "BertForQuestionAnswering": Architecture(
        ("bert", "span"),
        lambda spec, _: fine_tuning.BertForQuestionAnswering(spec),
    ),
}
