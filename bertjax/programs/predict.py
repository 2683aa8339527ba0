"""Predicts labels, numbers, choices, tags or answers for new text with a fine-tuned model."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from bertjax.base.checks import check_new_output
from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.inference.features.texts import decoded, read_texts
from bertjax.runs.fine_tuning.answers import AT_ONCE, Line, examples_of, numbered, predictions
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.source import Source
from bertjax.tasks.official_files import ending
from bertjax.tasks.rows import read_rows
from bertjax.training.hardware import AUTO

STANDARD = "-"  # standard input, or output
STANDARD_INPUT = "standard input"  # in messages


def run(model: str | Source, source: str, output: str) -> None:
    """Writes a JSON object for each line of the input, or row of a table, in the same order.

    An empty line gives an empty object. Other fields of a row or an object, such as an id, are
    copied to its answer; they become "given_NAME" if the answer itself has NAME. It computes in the
    dtype of `bertjax.training.hardware.compute_dtype`.

    Args:
      model: RUN of fine-tuning (RUN/CHOICE over fixed features), an ensemble of such runs, or
        hf:FOLDER, hf:NAME of a fine-tuned encoder.
      source: a text file (.gz .xz .bz2 .zst too), or "-". A line is what the model's family parses:
        "A", "A ||| B", words with spaces between them, or a JSON object. Or a .csv or .tsv, whose
        columns have the names of such an object's fields, or those of the table of training.
      output: a file, whole or absent, here or in a bucket; or "-".

    Raises:
      InputError: the model or the file is missing; the output exists; a line cannot be used.
    """
    check_output(output)
    for flag, name, stream in (("input", source, sys.stdin), ("output", output, sys.stdout)):
        if name == STANDARD and stream is None:
            raise InputError(f"--{flag}=-: standard {flag} is closed: name a file")
    origin = STANDARD_INPUT if source == STANDARD else source
    lines = lines_of(source, origin)
    fine_tuned = open_fine_tuned(model, AUTO)
    print(fine_tuned.summary, file=sys.stderr)
    if source != STANDARD:  # errors in a file are found before the first answer
        for _ in examples_of(fine_tuned, lines_of(source, origin)):
            pass
    # A user who types the lines waits for each answer.
    typed = source == STANDARD and sys.stdin.isatty()
    answers = predictions(fine_tuned, lines, origin, 1 if typed else AT_ONCE)
    with contextlib.ExitStack() as stack:
        file: IO = sys.stdout
        if output != STANDARD:
            file = stack.enter_context(atomic_write(output, "w"))
        for answer in answers:
            line = json.dumps(answer, ensure_ascii=False)
            try:
                print(line, file=file, flush=file is sys.stdout)
            except BrokenPipeError:  # the reader has closed the pipe, as `head` does
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return


def check_output(output: str) -> None:
    if output == STANDARD:
        return
    target = path_of(output)
    checked_path(target.parent, write=True)
    check_new_output(target)


def lines_of(source: str, origin: str) -> Iterable[Line]:
    """The lines of the input; a row of a table is the JSON object of its columns.

    Raises InputError if the file is missing; or, while it is read, if it is damaged.
    """
    path = Path(source)
    if path.is_file() and ending(path) in (".csv", ".tsv"):
        rows = read_rows(path.parent, path.name)
        return ((json.dumps(row.fields, ensure_ascii=False), row.where) for row in rows)
    texts = decoded(sys.stdin.buffer, origin) if source == STANDARD else read_texts(source)
    return numbered(texts, origin)
