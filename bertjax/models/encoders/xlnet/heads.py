"""XLNet's heads: <cls>, its last token, through a dense layer and tanh."""

from bertjax.models.encoders.bert.heads import Pooler
from bertjax.models.encoders.xlnet.spec import XlnetSpec


def readout(spec: XlnetSpec, kind: str) -> Pooler:
    """The summary of a text, for all kinds of models."""
    del kind
    return Pooler(spec, last=True, name="pooler")
