"""XLNet (arXiv 1906.08237) as a family of encoders."""

from bertjax.base.fields import SEGMENT_IDS, TEXT
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily, PoolerSpec
from bertjax.models.encoders.presets import SCOPES
from bertjax.models.encoders.xlnet.encoder import Xlnet
from bertjax.models.encoders.xlnet.spec import XlnetSpec

XLNET = EncoderFamily(
    spec=XlnetSpec,
    module=Xlnet,
    inputs=tuple(TEXT | SEGMENT_IDS),
    heads={
        head_types.ENCODER: (),
        head_types.PERMUTATION_LM: ("masked_lm",),
        head_types.MASKED_LM: ("masked_lm",),
        head_types.CAUSAL_LM: ("masked_lm",),
        head_types.REPLACED_TOKENS: ("replaced_tokens",),
        head_types.SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
        head_types.MULTIPLE_CHOICE: ("pooler", "classifier"),
        head_types.TOKEN_CLASSIFICATION: ("classifier",),
        head_types.QUESTION_ANSWERING: ("span",),
    },
    poolers=dict.fromkeys(head_types.OF_WHOLE_TEXTS, PoolerSpec("pooler", "tanh", last=True)),
    scopes=((r"/attention/(query|key|value|distance|output)/", "attention projections"),)
    + SCOPES[1:],
    two_streams=True,
)
