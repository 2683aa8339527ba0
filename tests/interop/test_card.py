"""The lines of a model card that load the model."""

import pytest

from bertjax.interop.card import model_card
from bertjax.interop.published.registry import PUBLISHED
from bertjax.models.encoders import head_types
from bertjax.models.heads.embedding import Embedding
from tests.helpers.small_models import family_model, with_vectors


def _use(model) -> list[str]:
    card = model_card(model, "moo", {}, {})
    return card.split("```python\n")[1].split("\n```")[0].splitlines()


@pytest.mark.parametrize(
    ("kind", "auto"),
    [
        (head_types.ENCODER, "AutoModel"),
        (head_types.MASKED_LM, "AutoModelForMaskedLM"),
        (head_types.SEQUENCE_CLASSIFICATION, "AutoModelForSequenceClassification"),
    ],
)
def test_code_that_is_on_the_hub_is_trusted(vocabulary, kind, auto):
    """transformers has no NeoBERT."""
    assert _use(family_model(vocabulary, "neobert", kind)) == [
        f"from transformers import AutoTokenizer, {auto}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("moo", trust_remote_code=True)',
        f'model = {auto}.from_pretrained("moo", trust_remote_code=True)',
    ]


def test_vectors_of_code_that_is_on_the_hub(vocabulary):
    model = family_model(vocabulary, "neobert", head_types.ENCODER)
    lines = _use(with_vectors(model, Embedding()))
    assert 'model = SentenceTransformer("moo", trust_remote_code=True)' in lines


@pytest.mark.peers
@pytest.mark.parametrize("name", ["deberta-v2", "neobert"])
def test_the_classes_exist(vocabulary, name):
    """Of those families whose classes transformers does not have, or not all."""
    for kind in PUBLISHED[name].classes:
        exec(_use(family_model(vocabulary, name, kind))[0], {})
