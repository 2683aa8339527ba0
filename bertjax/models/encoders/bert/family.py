"""BERT (arXiv 1810.04805) as a family of encoders."""

from bertjax.base.fields import POSITION_IDS, SEGMENT_IDS, TEXT
from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.bert.heads import MaskedLanguageModel, readout
from bertjax.models.encoders.bert.spec import BertSpec
from bertjax.models.encoders.contract import EncoderFamily

BERT = EncoderFamily(
    spec=BertSpec,
    module=Bert,
    inputs=tuple(TEXT | SEGMENT_IDS | POSITION_IDS),
    heads={
        kinds.ENCODER: ("pooler",),
        kinds.PRE_TRAINING: ("pooler", "masked_lm", "next_sentence_head"),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
        kinds.MULTIPLE_CHOICE: ("pooler", "classifier"),
        kinds.TOKEN_CLASSIFICATION: ("classifier",),
        kinds.QUESTION_ANSWERING: ("span",),
    },
    readout=readout,
    masked_lm=MaskedLanguageModel,
    scopes=(
        (r"/attention/(qkv|output)/", "attention projections"),
        (r"/attention/", "attention"),
        (r"_dropout/|embeddings/dropout/", "dropout"),
        (r"_norm/|/norm/", "layer norm"),
        (r"/(intermediate|output|activation)/", "feed-forward"),
        (r"/embeddings/", "embeddings"),
    ),
    vocabulary=("bert/embeddings/token", "masked_lm/bias"),
    goes_on=True,
)
