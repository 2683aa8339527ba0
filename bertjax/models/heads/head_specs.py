"""Every kind of model: an encoder of any family with its heads."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from flax import linen as nn

from bertjax.base.fields import (
    CHARACTERS,
    INPUTS,
    NEXT_WORDS,
    TEXT_NUMBERS,
    WORD_LENGTH,
    WORD_MASK,
    Field,
)
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads import tasks
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.next_words import NextWordsModel
from bertjax.models.heads.permutation import PermutationModel
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.heads.replaced_tokens import Discriminator


class HeadSpec(NamedTuple):
    """A model of one of `bertjax.models.encoders.head_types`."""

    head_type: str
    build: Callable[[EncoderSpec, int], nn.Module]  # only classifiers use the number of classes
    axes: tuple[str, ...] = ("B", "S")  # of its inputs, by the letters of `bertjax.base.axes`
    heads: str = ""  # the kind whose heads it has; "": it is a kind of the families
    added_parts: tuple[str, ...] = ()  # the parts that it has besides those
    replacing_parts: tuple[str, ...] = ()  # the parts that it has in the place of those
    fields: Mapping[str, Field] = MappingProxyType({})  # besides the encoder's inputs
    settings: tuple[str, ...] = ()  # fields of a task's family and of the module

    def fits(self, family: EncoderFamily) -> bool:
        """Whether a family has models of this kind."""
        return (self.heads or self.head_type) in family.heads

    def module(self, spec: EncoderSpec, num_classes: int, task: Mapping[str, Any]) -> nn.Module:
        """The module, with its settings from the fields of a task's family."""
        settings = {name: task[name] for name in self.settings}
        return self.build(spec, num_classes).clone(**settings)

    def inputs(self, spec: EncoderSpec, **sizes: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes and dtypes of its inputs; see `text_inputs`."""
        shape = tuple(sizes.values())
        fields = {
            name: jax.ShapeDtypeStruct(shape, each.dtype) for name, each in self.fields.items()
        }
        return text_inputs(spec, **sizes) | fields

    def parts(self, spec: EncoderSpec, bilstm: BiLstm | None = None) -> tuple[str, ...]:
        """The top-level names of its parameters; a BiLSTM replaces all but the output layer."""
        heads = self.replacing_parts or (
            *family_of(spec).heads[self.heads or self.head_type],
            *self.added_parts,
        )
        if bilstm:
            heads = (tasks.BILSTM, *(part for part in heads if part in tasks.OUTPUT_LAYERS))
        return (spec.encoder, *heads)


def _masked_lm(spec: EncoderSpec, num_classes: int) -> nn.Module:
    del num_classes
    return PreTrainingModel(spec, next_sentence=False)


HEAD_SPECS = {
    head_spec.head_type: head_spec
    for head_spec in (
        HeadSpec(head_types.ENCODER, lambda spec, _: tasks.EncoderModel(spec)),
        HeadSpec(head_types.PRE_TRAINING, lambda spec, _: PreTrainingModel(spec)),
        HeadSpec(head_types.MASKED_LM, _masked_lm),
        HeadSpec(head_types.CAUSAL_LM, _masked_lm),
        HeadSpec(head_types.PERMUTATION_LM, lambda spec, _: PermutationModel(spec)),
        HeadSpec(head_types.REPLACED_TOKENS, lambda spec, _: Discriminator(spec)),
        HeadSpec(
            head_types.BIDIRECTIONAL_LM, lambda spec, _: NextWordsModel(spec), fields=NEXT_WORDS
        ),
        HeadSpec(head_types.SEQUENCE_CLASSIFICATION, tasks.SequenceClassifier),
        HeadSpec(
            head_types.ANSWER_NETWORK,
            tasks.PairClassifier,
            heads=head_types.SEQUENCE_CLASSIFICATION,
            replacing_parts=("answer_network",),
            fields=TEXT_NUMBERS,
            settings=("steps", "step_dropout"),
        ),
        HeadSpec(
            head_types.MULTIPLE_CHOICE, lambda spec, _: tasks.ChoiceScorer(spec), ("B", "C", "S")
        ),
        HeadSpec(head_types.TOKEN_CLASSIFICATION, tasks.TokenClassifier),
        HeadSpec(
            head_types.TAG_SEQUENCE,
            tasks.SequenceTagger,
            heads=head_types.TOKEN_CLASSIFICATION,
            added_parts=("crf",),
            fields=WORD_MASK,
        ),
        HeadSpec(head_types.QUESTION_ANSWERING, lambda spec, _: tasks.SpanFinder(spec)),
    )
}


def text_inputs(spec: EncoderSpec, **sizes: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and dtypes of an encoder's inputs, for the sizes B, S, or B, C, S, in order."""
    shape = tuple(sizes.values())
    return {
        name: jax.ShapeDtypeStruct(
            shape + (WORD_LENGTH,) * (name in CHARACTERS), INPUTS[name].dtype
        )
        for name in family_of(spec).text_inputs
    }
