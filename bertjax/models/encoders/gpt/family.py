"""GPT and GPT-2 (Radford et al., 2018, 2019) as families of encoders."""

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.family import BERT
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.models.encoders.gpt.encoder import Gpt, Gpt2
from bertjax.models.encoders.gpt.heads import LanguageModel, readout
from bertjax.models.encoders.gpt.spec import Gpt2Spec, GptSpec


def _family(spec: type[GptSpec], module: type[Gpt]) -> EncoderFamily:
    return EncoderFamily(
        spec=spec,
        module=module,
        inputs=("input_ids", "input_mask", "segment_ids"),
        heads={
            kinds.ENCODER: (),
            kinds.CAUSAL_LM: (),
            kinds.SEQUENCE_CLASSIFICATION: ("classifier",),
            kinds.MULTIPLE_CHOICE: ("classifier",),
            kinds.TOKEN_CLASSIFICATION: ("classifier",),
            kinds.QUESTION_ANSWERING: ("span",),
        },
        readout=readout,
        masked_lm=LanguageModel,
        scopes=BERT.scopes,
        vocabulary=(f"{spec.encoder}/embeddings/token",),
        unbiased=kinds.OF_WHOLE_TEXTS,
        goes_on=True,
    )


GPT = _family(GptSpec, Gpt)
GPT2 = _family(Gpt2Spec, Gpt2)
