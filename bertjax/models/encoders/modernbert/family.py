"""ModernBERT (arXiv 2412.13663) as a family of encoders."""

from bertjax.models.encoders import kinds
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.modernbert.encoder import ModernBert
from bertjax.models.encoders.modernbert.heads import MaskedLanguageModel, PredictionHead, readout
from bertjax.models.encoders.modernbert.spec import ModernBertSpec

MODERNBERT = EncoderFamily(
    spec=ModernBertSpec,
    module=ModernBert,
    inputs=("input_ids", "input_mask", "segment_ids"),
    heads={
        kinds.ENCODER: (),
        kinds.MASKED_LM: ("masked_lm",),
        kinds.CAUSAL_LM: ("masked_lm",),
        kinds.REPLACED_TOKENS: ("replaced_tokens",),
        kinds.SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
        kinds.MULTIPLE_CHOICE: ("pooler", "classifier"),
        kinds.TOKEN_CLASSIFICATION: ("token_head", "classifier"),
        kinds.QUESTION_ANSWERING: ("token_head", "span"),
    },
    readout=readout,
    masked_lm=MaskedLanguageModel,
    token_head=PredictionHead,
    goes_on=True,
    scopes=(
        (r"/attention/(qkv|output)/", "attention projections"),
        (r"/local_layer/.*/attention/", "local attention"),
        (r"/attention/", "attention"),
        (r"_dropout/|embeddings/dropout/", "dropout"),
        (r"_norm/|/norm/", "layer norm"),
        (r"/feed_forward/", "feed-forward"),
        (r"/embeddings/", "embeddings"),
    ),
    vocabulary=("modernbert/embeddings/token", "masked_lm/bias"),
)
