"""What each family of encoders is called in transformers."""

from collections.abc import Iterable

from bertjax.interop.names import Entry, Names, array_entries
from bertjax.interop.published.bert import BERT
from bertjax.interop.published.deberta_v2 import DEBERTA_V2
from bertjax.interop.published.distilbert import DISTILBERT
from bertjax.interop.published.electra import ELECTRA
from bertjax.interop.published.elmo import ELMO
from bertjax.interop.published.eurobert import EUROBERT
from bertjax.interop.published.gpt import GPT, GPT2
from bertjax.interop.published.modernbert import MODERNBERT
from bertjax.interop.published.neobert import NEOBERT
from bertjax.interop.published.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from bertjax.interop.published.xlm import XLM
from bertjax.interop.published.xlnet import TRANSFORMER_XL, XLNET
from bertjax.models.encoders.contract import EncoderSpec

PUBLISHED = {
    "bert": BERT,
    "modernbert": MODERNBERT,
    "eurobert": EUROBERT,
    "neobert": NEOBERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "electra": ELECTRA,
    "deberta-v2": DEBERTA_V2,
    "distilbert": DISTILBERT,
    "openai-gpt": GPT,
    "gpt2": GPT2,
    "xlm": XLM,
    "xlnet": XLNET,
    "transfo-xl": TRANSFORMER_XL,
    "elmo": ELMO,
}


def names_of(spec: EncoderSpec) -> Names:
    """The names of the family that a spec belongs to."""
    return PUBLISHED[spec.encoder]


def array_names(
    parts: Iterable[str], spec: EncoderSpec, head_type: str, num_classes: int
) -> list[Entry]:
    """The arrays of parts of a model: see `array_entries`."""
    return array_entries(names_of(spec), parts, spec, head_type, num_classes)
