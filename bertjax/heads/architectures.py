"""Every model there is: an encoder of any family with heads, by its kind."""

from collections.abc import Callable
from typing import NamedTuple

from flax import linen as nn

from bertjax.encoders import kinds
from bertjax.encoders.contract import EncoderSpec
from bertjax.heads import tasks
from bertjax.heads.pretraining import PreTrainingModel


class Architecture(NamedTuple):
    """A model of one of `bertjax.encoders.kinds`.

    Attributes:
      heads: the top-level names of its parameters, but for the encoder's.
      build: (spec, number of classes) -> module; only classifiers look at the number.
      axes: the shape of its input.
    """

    heads: tuple[str, ...]
    build: Callable[[EncoderSpec, int], nn.Module]
    axes: tuple[str, ...] = ("B", "S")

    def parts(self, spec: EncoderSpec) -> tuple[str, ...]:
        """The top-level names of its parameters."""
        return (spec.encoder, *self.heads)


ARCHITECTURES = {
    kinds.ENCODER: Architecture(("pooler",), lambda spec, _: tasks.EncoderModel(spec)),
    kinds.PRE_TRAINING: Architecture(
        ("pooler", "masked_lm", "next_sentence_head"), lambda spec, _: PreTrainingModel(spec)
    ),
    kinds.MASKED_LM: Architecture(
        ("masked_lm",), lambda spec, _: PreTrainingModel(spec, next_sentence=False)
    ),
    kinds.CAUSAL_LM: Architecture(
        ("masked_lm",), lambda spec, _: PreTrainingModel(spec, next_sentence=False)
    ),
    kinds.SEQUENCE_CLASSIFICATION: Architecture(("pooler", "classifier"), tasks.SequenceClassifier),
    kinds.MULTIPLE_CHOICE: Architecture(
        ("pooler", "classifier"), lambda spec, _: tasks.ChoiceScorer(spec), ("B", "C", "S")
    ),
    kinds.TOKEN_CLASSIFICATION: Architecture(("classifier",), tasks.TokenClassifier),
    kinds.QUESTION_ANSWERING: Architecture(("span",), lambda spec, _: tasks.SpanFinder(spec)),
}
