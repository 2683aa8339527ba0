"""XLM (arXiv 1901.07291) as a family of encoders."""

from bertjax.base.fields import LANGUAGE_IDS, POSITION_IDS, SEGMENT_IDS
from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.xlm.encoder import Xlm
from bertjax.models.encoders.xlm.heads import LanguageModel, readout
from bertjax.models.encoders.xlm.spec import XlmSpec

XLM = EncoderFamily(
    spec=XlmSpec,
    module=Xlm,
    inputs=("input_ids", "input_mask", *SEGMENT_IDS, *POSITION_IDS, *LANGUAGE_IDS),
    heads={
        kinds.ENCODER: (),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.SEQUENCE_CLASSIFICATION: ("classifier",),
        kinds.MULTIPLE_CHOICE: ("classifier",),
        kinds.TOKEN_CLASSIFICATION: ("classifier",),
        kinds.QUESTION_ANSWERING: ("span",),
    },
    readout=readout,
    masked_lm=LanguageModel,
    scopes=BERT.scopes,
    vocabulary=("xlm/embeddings/token", "masked_lm/bias"),
)
