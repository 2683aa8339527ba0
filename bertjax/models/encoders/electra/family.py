"""ELECTRA (arXiv 2003.10555) as a family of encoders."""

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.electra.encoder import Electra
from bertjax.models.encoders.electra.heads import MaskedLanguageModel, readout
from bertjax.models.encoders.electra.spec import ElectraSpec

ELECTRA = EncoderFamily(
    spec=ElectraSpec,
    module=Electra,
    inputs=BERT.inputs,
    heads={
        kinds.ENCODER: (),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.SEQUENCE_CLASSIFICATION: ("classifier_dense", "classifier"),
        kinds.MULTIPLE_CHOICE: ("summary", "classifier"),
        kinds.TOKEN_CLASSIFICATION: ("classifier",),
        kinds.QUESTION_ANSWERING: ("span",),
    },
    readout=readout,
    masked_lm=MaskedLanguageModel,
    scopes=((r"/projection/", "embeddings"), *BERT.scopes),
    vocabulary=("electra/embeddings/token", "masked_lm/bias"),
)
