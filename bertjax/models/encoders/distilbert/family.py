"""DistilBERT (arXiv 1910.01108) as a family of encoders."""

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.bert.heads import MaskedLanguageModel
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.distilbert.heads import readout
from bertjax.models.encoders.distilbert.spec import DistilBertSpec

DISTILBERT = EncoderFamily(
    spec=DistilBertSpec,
    module=Bert,
    inputs=tuple(name for name in BERT.inputs if name != "token_type_ids"),
    heads={
        kinds.ENCODER: (),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.SEQUENCE_CLASSIFICATION: ("pre_classifier", "classifier"),
        kinds.MULTIPLE_CHOICE: ("pre_classifier", "classifier"),
        kinds.TOKEN_CLASSIFICATION: ("classifier",),
        kinds.QUESTION_ANSWERING: ("span",),
    },
    readout=readout,
    masked_lm=MaskedLanguageModel,
    scopes=BERT.scopes,
    vocabulary=("distilbert/embeddings/token", "masked_lm/bias"),
)
