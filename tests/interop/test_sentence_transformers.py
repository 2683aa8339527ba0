"""Folders of sentence-transformers: read, or refused; written so that it computes the same vectors."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bertjax.heads.embedding import DENSE, LATE, SPARSE, Embedding, model_kind
from bertjax.interop import proof, sentence_transformers_check
from bertjax.interop.hugging_face import write_hugging_face
from tests.encoders import modernbert_models
from tests.helpers import small_models

FAMILIES = {"bert": small_models, "modernbert": modernbert_models}
TEXTS = [
    "The cat runs.",
    "a dog, the house",
    "Blue!",
    "the cats running of the dogs, a blue house?",
]
PROMPTS = dict(query_prompt="the dog, ", passage_prompt="a cat. ")
CLASSES = {
    DENSE: "sentence_transformers.models.Pooling",
    SPARSE: "sentence_transformers.sparse_encoder.models.SpladePooling",
    LATE: "sentence_transformers.models.Dense",
}


def small_model(vocabulary, embedding: Embedding, family: str = "bert"):
    """A small random model that makes such vectors; its encoder has no pooler."""
    kind = model_kind(embedding)
    if family == "bert":
        names = {known: name for name, known in small_models.KINDS.items()}
        model = small_models.small_model(vocabulary, names[kind])
    else:
        model = modernbert_models.small_model(vocabulary, kind)
    params = {part: params for part, params in model.params.items() if part != "pooler"}
    if embedding.kind == LATE:
        shape = model.spec.hidden_size, embedding.width
        rng = np.random.default_rng(3)
        params["projection"] = {"kernel": rng.normal(0, 0.2, shape).astype(np.float32)}
    return dataclasses.replace(model, params=params, embedding=embedding)


def modules_of(folder: Path) -> list[str]:
    return [module["type"] for module in json.loads((folder / "modules.json").read_text())]


def change(file: Path, **fields) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


VECTORS = {
    "mean": Embedding(),
    "max": Embedding(pooling="max", normalize=False, similarity="dot"),
    "cls": Embedding(pooling="cls", similarity="euclidean", query_length=7, passage_length=9),
    "last": Embedding(pooling="last", count_prompt=False, **PROMPTS),
    "mean without the prompt": Embedding(count_prompt=False, **PROMPTS),
    "cls without the prompt": Embedding(pooling="cls", count_prompt=False, **PROMPTS),
    "max without the prompt": Embedding(pooling="max", count_prompt=False, **PROMPTS),
    "with prompts": Embedding(normalize=False, query_length=9, passage_length=9, **PROMPTS),
    "sparse": Embedding(kind=SPARSE, **PROMPTS),
    "sparse by its cosine": Embedding(kind=SPARSE, similarity="cosine", query_length=5),
    "late": Embedding(kind=LATE, width=7, query_length=5, passage_length=9, **PROMPTS),
    "late without prompts": Embedding(kind=LATE, width=31),
}


@pytest.mark.peers
@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_sentence_transformers_computes_the_same(vocabulary, tmp_path, family, name):
    model = small_model(vocabulary, VECTORS[name], family)
    write_hugging_face(model, tmp_path)
    for query in (True, False):
        ours = proof.vectors(model, TEXTS, query=query)
        theirs = sentence_transformers_check.vectors(
            tmp_path, model.embedding.kind, TEXTS, query=query
        )
        for one, other in zip(ours, theirs, strict=True):
            print(name, family, np.abs(one - other).max())
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
