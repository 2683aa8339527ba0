"""The vectors of texts, or the nearest of given documents, as objects of JSON."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bertjax.models.heads.embedding import LATE, SPARSE
from bertjax.runs.contrastive.opened import Opened
from bertjax.runs.contrastive.vectors import TextVectors, Vectorizer, search
from bertjax.runs.fine_tuning.answers import with_further

_LEAST = 1e-6  # smaller weights of sparse vectors are left out


class InputRow(NamedTuple):
    """A text, "" for an empty line, and what else its line has."""

    text: str
    further: dict[str, Any]


def answers_of(
    opened: Opened, texts: list[str], documents_by_line: dict[int, InputRow], nearest: int
) -> Iterator[dict[str, Any]]:
    """Yields the answer for each text; `documents_by_line` has the documents by their lines."""
    assert opened.embedding is not None
    pretrained = opened.pretrained
    vectorizer = Vectorizer(
        opened.model,
        opened.embedding,
        pretrained.tokenizer,
        pretrained.spec.max_position_embeddings,
        opened.placement,
        None,
    )
    vectors = vectorizer.vectors(opened.params, texts, query=True, what="vectors")
    if not documents_by_line:
        yield from ({"vector": vector} for vector in _shown(vectors, opened))
        return
    lines = list(documents_by_line)
    documents = vectorizer.vectors(
        opened.params,
        [row.text for row in documents_by_line.values()],
        query=False,
        what="vectors of documents",
    )
    compared_by = opened.embedding.compared_by
    found = search(vectors, documents, compared_by, nearest, opened.placement)
    for numbers, scores in zip(*found, strict=True):
        nearest_lines = zip([lines[n] for n in numbers], scores.tolist(), strict=True)
        yield {
            "nearest": [
                _near_document(line, score, *documents_by_line[line])
                for line, score in nearest_lines
            ]
        }


def _near_document(line: int, score: float, text: str, further: dict[str, Any]) -> dict[str, Any]:
    return with_further(further, {"line": line, "score": score, "text": text})


def _shown(vectors: TextVectors, opened: Opened) -> Iterator[Any]:
    assert opened.embedding is not None
    tokens = opened.pretrained.tokenizer.tokens
    for number in range(len(vectors)):
        if vectors.starts is not None:
            assert opened.embedding.kind == LATE
            yield vectors.values[slice(*vectors.starts[number : number + 2])].tolist()
        elif opened.embedding.kind == SPARSE:
            row = vectors.values[number]
            places = np.argsort(-row)[: int((row > _LEAST).sum())]
            yield {tokens[place]: float(row[place]) for place in places}
        else:
            yield vectors.values[number].tolist()
