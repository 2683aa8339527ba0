"""Every encoder family, by its name in `config.model.encoder`."""

from collections.abc import Iterable

from flax import linen as nn

from bertjax.encoders.bert.family import BERT
from bertjax.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.encoders.modernbert.family import MODERNBERT
from bertjax.encoders.names import Entry

ENCODERS = {family.name: family for family in (BERT, MODERNBERT)}


def family_of(spec: EncoderSpec) -> EncoderFamily:
    """The family that a spec belongs to."""
    return ENCODERS[spec.encoder]


def make_encoder(spec: EncoderSpec) -> nn.Module:
    """The encoder of a spec; in the parameters of a model its part has the family's name."""
    family = family_of(spec)
    return family.module(spec, name=family.name)


def array_names(parts: Iterable[str], spec: EncoderSpec, num_classes: int) -> list[Entry]:
    """The arrays of parts of a model, in plain storage, with transformers' names of them.

    Args:
      num_classes: the width of the classifier, if it is among the parts.
    """
    entries = family_of(spec).hugging_face.entries(spec, num_classes)
    return [entry for part in parts for entry in entries[part]]
