"""Every encoder family, by its name in `config.model.encoder`."""

from flax import linen as nn

from bertjax.models.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.models.encoders.elmo.family import ELMO
from bertjax.models.encoders.presets import PRESETS
from bertjax.models.encoders.xlnet.family import TRANSFORMER_XL, XLNET

ENCODERS = {family.name: family for family in (*PRESETS, XLNET, TRANSFORMER_XL, ELMO)}


def family_of(spec: EncoderSpec) -> EncoderFamily:
    """The family that a spec belongs to."""
    return ENCODERS[spec.encoder]


def make_encoder(spec: EncoderSpec) -> nn.Module:
    """The encoder of a spec; its part of a model's parameters has the family's name."""
    family = family_of(spec)
    return family.module(spec, name=family.name)
