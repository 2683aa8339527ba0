"""Vectors of texts, or the nearest of given documents, as lines of JSON."""

import contextlib
import json
import sys
from typing import IO

from bertjax.base.checks import check_file
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.inference.features.texts import unit_of
from bertjax.programs.predict import (
    STANDARD,
    STANDARD_INPUT,
    check_output,
    lines_of,
)
from bertjax.runs.contrastive.answers import InputRow, answers_of
from bertjax.runs.contrastive.opened import open_vectors
from bertjax.runs.fine_tuning.answers import with_further
from bertjax.runs.source import Source
from bertjax.tasks.rows import json_object, looks_like_json

_FORM = '{"text": "..."}'


def run(
    model: str | Source,
    source: str,
    output: str,
    documents: str | None,
    nearest: int,
    dimensions: int | None = None,
) -> None:
    """Writes a JSON object for each line of the input, in the same order.

    It has the text, and its vector: a list of numbers, of lists for late interaction, or an object
    of pieces and weights for sparse vectors. With `documents`, it has the nearest of these instead.
    An empty line has an empty object. Other fields of an object or a row are copied.

    Args:
      source: a text file, or "-": a line is a text, or {"text": "..."}; or a .csv or .tsv with a
        column of texts. The texts are queries.
      documents: such a file to search, or None. Empty lines are left out.
      dimensions: the first numbers of a vector that are kept, or None for all.

    Raises:
      InputError: the model or a file is missing; a line is JSON of another form; the output exists.
    """
    check_output(output)
    texts = _texts(source)
    among = {}
    if documents:
        if unit_of(documents) == "line":
            check_file(documents, "documents")
        among = {n: row for n, row in enumerate(_texts(documents), 1) if row.text}
        if not among:
            raise InputError(f"--documents={documents}: no text in it")
    with contextlib.redirect_stdout(sys.stderr):
        opened = open_vectors(model, dimensions)
    with contextlib.ExitStack() as stack:
        file: IO = sys.stdout
        if output != STANDARD:
            file = stack.enter_context(atomic_write(output, "w"))
        nonempty = [row.text for row in texts if row.text]
        answers = answers_of(opened, nonempty, among, nearest) if nonempty else iter(())
        for text, further in texts:
            answer = with_further(further, {"text": text, **next(answers)}) if text else {}
            print(json.dumps(answer, ensure_ascii=False), file=file)


def _texts(source: str) -> list[InputRow]:
    origin = STANDARD_INPUT if source == STANDARD else source
    return [_input_row(line, where) for line, where in lines_of(source, origin)]


def _input_row(line: str, where: str) -> InputRow:
    if not looks_like_json(line):
        return InputRow(line if line.strip() else "", {})
    further = json_object(line, where, _FORM)
    text = further.pop("text", None)
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: {line.strip()[:80]}: no text, or an empty one: write {_FORM}")
    return InputRow(text, further)
