"""RoBERTa, XLM-RoBERTa and CamemBERT as families of encoders."""

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.bert.heads import MaskedLanguageModel
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.roberta.encoder import Roberta
from bertjax.models.encoders.roberta.heads import readout
from bertjax.models.encoders.roberta.spec import CamembertSpec, RobertaSpec, XlmRobertaSpec


def _family(spec: type[RobertaSpec]) -> EncoderFamily:
    heads = {kind: parts for kind, parts in BERT.heads.items() if kind != kinds.PRE_TRAINING}
    return EncoderFamily(
        spec=spec,
        module=Roberta,
        inputs=BERT.inputs,
        heads=heads | {kinds.SEQUENCE_CLASSIFICATION: ("classifier_dense", "classifier")},
        readout=readout,
        masked_lm=MaskedLanguageModel,
        scopes=BERT.scopes,
        vocabulary=(f"{spec.encoder}/embeddings/token", "masked_lm/bias"),
    )


ROBERTA = _family(RobertaSpec)
XLM_ROBERTA = _family(XlmRobertaSpec)
CAMEMBERT = _family(CamembertSpec)
