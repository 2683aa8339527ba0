"""Vectors of texts, or the nearest of given documents, as lines of JSON."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, no_file
from bertjax.inference.features.texts import unit_of
from bertjax.models.heads.embedding import LATE, SPARSE
from bertjax.programs.predict import (
    STANDARD,
    STANDARD_INPUT,
    check_output,
    lines_of,
    with_further,
)
from bertjax.runs.contrastive.opened import Opened, open_vectors
from bertjax.runs.contrastive.vectors import TextVectors, Vectorizer, search
from bertjax.runs.source import Source
from bertjax.tasks.rows import json_object, looks_like_json

_LEAST = 1e-6  # smaller weights of sparse vectors are left out
_FORM = '{"text": "..."}'


def run(model: str | Source, source: str, output: str, documents: str | None, nearest: int) -> None:
    """Writes a JSON object for each line of the input, in the same order.

    It has the text, and its vector: a list of numbers, of lists for late interaction, or an object
    of pieces and weights for sparse vectors. With `documents`, it has the nearest of these instead.
    An empty line has an empty object. Other fields of an object or a row are copied.

    Args:
      model: RUN, hf:FOLDER or hf:NAME of a model of vectors.
      source: a text file, or "-": a line is a text, or {"text": "..."}; or a .csv or .tsv with a
        column of texts. The texts are queries.
      output: a file, whole or absent; or "-".
      documents: such a file to search, or None. Empty lines are left out.
      nearest: how many documents to find for each text.

    Raises:
      InputError: the model or a file is missing; a line is JSON of another form; the output exists.
    """
    check_output(output)
    texts = _texts(source)
    among = {}
    if documents:
        if unit_of(documents) == "line" and not Path(documents).is_file():
            raise InputError(f"--documents={documents}: {no_file(documents)}")
        among = {n: given for n, given in enumerate(_texts(documents), 1) if given.text}
        if not among:
            raise InputError(f"--documents={documents}: no text in it")
    with contextlib.redirect_stdout(sys.stderr):
        opened = open_vectors(model)
    with contextlib.ExitStack() as stack:
        file: IO = sys.stdout
        if output != STANDARD:
            file = stack.enter_context(atomic_write(output, "w"))
        there = [given.text for given in texts if given.text]
        answers = _answers(opened, there, among, nearest) if there else iter(())
        for text, further in texts:
            answer = with_further(further, {"text": text, **next(answers)}) if text else {}
            print(json.dumps(answer, ensure_ascii=False), file=file)


class _Given(NamedTuple):
    """A text, "" for an empty line, and what else its line has."""

    text: str
    further: dict[str, Any]


def _texts(source: str) -> list[_Given]:
    origin = STANDARD_INPUT if source == STANDARD else source
    return [_given(line, where) for line, where in lines_of(source, origin)]


def _given(line: str, where: str) -> _Given:
    if not looks_like_json(line):
        return _Given(line if line.strip() else "", {})
    further = json_object(line, where, _FORM)
    text = further.pop("text", None)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: {line.strip()[:80]}: no text, or an empty one: write {_FORM}")
    return _Given(text, further)


def _answers(
    opened: Opened, texts: list[str], among: dict[int, _Given], nearest: int
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
        opened.params,
        [given.text for given in among.values()],
        query=False,
        what="vectors of documents",
    )
    compared_by = opened.embedding.compared_by
    found = search(vectors, documents, compared_by, nearest, opened.placement)
    for numbers, scores in zip(*found, strict=True):
        each = zip([lines[n] for n in numbers], scores.tolist(), strict=True)
        yield {"nearest": [_near(line, score, *among[line]) for line, score in each]}


def _near(line: int, score: float, text: str, further: dict[str, Any]) -> dict[str, Any]:
    return with_further(further, {"line": line, "score": score, "text": text})


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
