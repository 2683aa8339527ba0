"""XLNet (arXiv 1906.08237) as a family of encoders."""

from bertjax.base.fields import SEGMENT_IDS, TEXT
from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import EncoderFamily, ReadoutRow
from bertjax.models.encoders.presets import SCOPES
from bertjax.models.encoders.xlnet.encoder import Xlnet
from bertjax.models.encoders.xlnet.spec import XlnetSpec

XLNET = EncoderFamily(
    spec=XlnetSpec,
    module=Xlnet,
    inputs=tuple(TEXT | SEGMENT_IDS),
    heads={
        kinds.ENCODER: (),
        kinds.PERMUTATION_LM: ("masked_lm",),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
        kinds.MULTIPLE_CHOICE: ("pooler", "classifier"),
        kinds.TOKEN_CLASSIFICATION: ("classifier",),
        kinds.QUESTION_ANSWERING: ("span",),
    },
    readouts=dict.fromkeys(kinds.OF_WHOLE_TEXTS, ReadoutRow("pooler", "tanh", last=True)),
    scopes=((r"/attention/(query|key|value|distance|output)/", "attention projections"),)
    + SCOPES[1:],
    two_streams=True,
)
