"""Vectors of texts, or the nearest of given documents, as lines of JSON."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.contrastive.opened import Opened, open_vectors
from bertjax.contrastive.vectors import TextVectors, Vectorizer, search
from bertjax.features.texts import read_texts
from bertjax.heads.embedding import LATE, SPARSE
from bertjax.programs.predict import STANDARD, check_output

_LEAST = 1e-6  # smaller weights of sparse vectors are left out


def run(model: str, source: str, output: str, documents: str | None, nearest: int) -> None:
    """Writes a JSON object for each line of the input, in the same order.

    It has the text, and its vector: a list of numbers, of lists for late interaction, or an object
    of pieces and weights for sparse vectors. With `documents`, it has the nearest of these instead.
    An empty line has an empty object.

    Args:
      model: RUN, hf:FOLDER or hf:NAME of a model of vectors.
      source: a text file, or "-". The texts are queries.
      output: a file, whole or absent; or "-".
      documents: a text file to search, or None. Empty lines are left out.
      nearest: how many documents to find for each text.

    Raises:
      InputError: the model or a file is missing; the output exists.
    """
    check_output(output)
    texts = list(sys.stdin.read().splitlines() if source == STANDARD else read_texts(source))
    among = {}
    if documents:
        among = {n: text for n, text in enumerate(read_texts(documents), 1) if text.strip()}
        if not among:
            raise InputError(f"--documents={documents}: no text in it")
    with contextlib.redirect_stdout(sys.stderr):
        opened = open_vectors(model)
    with contextlib.ExitStack() as stack:
        file: IO = sys.stdout
        if output != STANDARD:
            file = stack.enter_context(atomic_write(output, "w"))
        there = [text for text in texts if text.strip()]
        answers = _answers(opened, there, among, nearest) if there else iter(())
        for text in texts:
            answer = {"text": text, **next(answers)} if text.strip() else {}
            print(json.dumps(answer, ensure_ascii=False), file=file)


def _answers(
    opened: Opened, texts: list[str], among: dict[int, str], nearest: int
) -> Iterator[dict[str, Any]]:
    """Yields the answer for each text.

    Args:
      among: the documents by their lines.
    """
    assert opened.embedding is not None
    given = opened.pretrained
    vectorizer = Vectorizer(
        opened.model,
        opened.embedding,
        given.tokenizer,
        given.spec.max_position_embeddings,
        opened.placement,
        None,
    )
    vectors = vectorizer.vectors(opened.params, texts, query=True, what="vectors")
    if not among:
        yield from ({"vector": each} for each in _shown(vectors, opened))
        return
    lines = list(among)
    documents = vectorizer.vectors(
        opened.params, list(among.values()), query=False, what="vectors of documents"
    )
    compared_by = opened.embedding.compared_by
    for numbers, scores in zip(
        *search(vectors, documents, compared_by, nearest, opened.placement), strict=True
    ):
        yield {
            "nearest": [
                {"line": lines[n], "score": float(score), "text": among[lines[n]]}
                for n, score in zip(numbers, scores, strict=True)
            ]
        }


def _shown(vectors: TextVectors, opened: Opened) -> Iterator[Any]:
    """Yields each vector as JSON."""
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
