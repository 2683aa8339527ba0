"""Every kind of model: an encoder of any family with its heads."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from flax import linen as nn

from bertjax.base.fields import CHARACTERS, INPUTS, WORD_LENGTH
from bertjax.encoders import kinds
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of
from bertjax.heads import tasks
from bertjax.heads.bilstm import BiLstm
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.heads.replaced_tokens import Discriminator


class Architecture(NamedTuple):
    """A model of one of `bertjax.encoders.kinds`.

    Attributes:
      kind: the kind.
      build: (spec, number of classes) -> module; only classifiers use the number.
      axes: the shape of its inputs, by the letters of `bertjax.base.axes`.
    """

    kind: str
    build: Callable[[EncoderSpec, int], nn.Module]
    axes: tuple[str, ...] = ("B", "S")

    def parts(self, spec: EncoderSpec, bilstm: BiLstm | None = None) -> tuple[str, ...]:
        """The top-level names of its parameters.

        A BiLSTM replaces every head but the output layer.
        """
        heads = family_of(spec).heads[self.kind]
        if bilstm:
            heads = (tasks.BILSTM, *(part for part in heads if part in tasks.OUTPUT_LAYERS))
        return (spec.encoder, *heads)


def _masked_lm(spec: EncoderSpec, num_classes: int) -> nn.Module:
    del num_classes
    return PreTrainingModel(spec, next_sentence=False)


ARCHITECTURES = {
    architecture.kind: architecture
    for architecture in (
        Architecture(kinds.ENCODER, lambda spec, _: tasks.EncoderModel(spec)),
        Architecture(kinds.PRE_TRAINING, lambda spec, _: PreTrainingModel(spec)),
        Architecture(kinds.MASKED_LM, _masked_lm),
        Architecture(kinds.CAUSAL_LM, _masked_lm),
        Architecture(kinds.REPLACED_TOKENS, lambda spec, _: Discriminator(spec)),
        Architecture(kinds.SEQUENCE_CLASSIFICATION, tasks.SequenceClassifier),
        Architecture(
            kinds.MULTIPLE_CHOICE, lambda spec, _: tasks.ChoiceScorer(spec), ("B", "C", "S")
        ),
        Architecture(kinds.TOKEN_CLASSIFICATION, tasks.TokenClassifier),
        Architecture(kinds.QUESTION_ANSWERING, lambda spec, _: tasks.SpanFinder(spec)),
    )
}


def text_inputs(spec: EncoderSpec, **sizes: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and dtypes of the inputs of an encoder.

    Args:
      sizes: the sizes of the dimensions B, S, or for choices B, C, S, in this order.
    """
    shape = tuple(sizes.values())
    return {
        name: jax.ShapeDtypeStruct(
            shape + (WORD_LENGTH,) * (name in CHARACTERS), INPUTS[name].dtype
        )
        for name in family_of(spec).text_inputs
    }
