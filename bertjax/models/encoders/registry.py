"""Every encoder family, by its name in `config.model.encoder`."""

from flax import linen as nn

from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.models.encoders.distilbert.family import DISTILBERT
from bertjax.models.encoders.electra.family import ELECTRA
from bertjax.models.encoders.elmo.family import ELMO
from bertjax.models.encoders.gpt.family import GPT, GPT2
from bertjax.models.encoders.modernbert.family import MODERNBERT
from bertjax.models.encoders.roberta.family import CAMEMBERT, ROBERTA, XLM_ROBERTA
from bertjax.models.encoders.xlm.family import XLM
from bertjax.models.encoders.xlnet.family import XLNET

_FAMILIES = (
    *(BERT, MODERNBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ELECTRA, DISTILBERT),
    *(GPT, GPT2, XLM, XLNET, ELMO),
)
ENCODERS = {family.name: family for family in _FAMILIES}


def family_of(spec: EncoderSpec) -> EncoderFamily:
    """The family that a spec belongs to."""
    return ENCODERS[spec.encoder]


def make_encoder(spec: EncoderSpec) -> nn.Module:
    """The encoder of a spec; its part of a model's parameters has the family's name."""
    family = family_of(spec)
    return family.module(spec, name=family.name)
