"""Predicts labels, numbers, choices, tags or answers for new text with a fine-tuned model."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bertjax.base.cloud_storage import checked_path, in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.inference.features.texts import decoded, read_texts
from bertjax.runs.fine_tuning.fine_tuned import FineTuned, open_fine_tuned
from bertjax.runs.source import Source
from bertjax.tasks.official_files import ending
from bertjax.tasks.rows import json_object, looks_like_json, read_rows
from bertjax.text.pairs import SEPARATOR
from bertjax.training.hardware import AUTO

STANDARD = "-"  # standard input, or output
STANDARD_INPUT = "standard input"  # in messages

_Line = tuple[str, str]  # a line and its place, for messages

_AT_ONCE = 1_000  # lines that are predicted together, if the input is not typed


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
        for _ in _examples(fine_tuned, lines_of(source, origin)):
            pass
    # A user who types the lines waits for each answer.
    typed = source == STANDARD and sys.stdin.isatty()
    answers = predictions(fine_tuned, lines, origin, 1 if typed else _AT_ONCE)
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
    if target.exists():
        raise InputError(f"--output={output}: is there already: choose another, or remove it")
    if not (in_bucket(target) or target.parent.is_dir()):
        raise InputError(f"--output={output}: no folder {target.parent}: make it")


def lines_of(source: str, origin: str) -> Iterable[_Line]:
    """The lines of the input; a row of a table is the JSON object of its columns.

    Raises:
      InputError: the file is missing; or, while it is read, it is damaged.
    """
    path = Path(source)
    if path.is_file() and ending(path) in (".csv", ".tsv"):
        rows = read_rows(path.parent, path.name)
        return ((json.dumps(row.fields, ensure_ascii=False), row.where) for row in rows)
    texts = decoded(sys.stdin.buffer, origin) if source == STANDARD else read_texts(source)
    return numbered(texts, origin)


def numbered(texts: Iterable[str], origin: str) -> Iterator[_Line]:
    """Lines of text, each with its place: "ORIGIN line 1" is the first."""
    return ((text, f"{origin} line {number}") for number, text in enumerate(texts, start=1))


def predictions(
    model: FineTuned, lines: Iterable[_Line], origin: str, at_once: int = _AT_ONCE
) -> Iterator[dict[str, Any]]:
    """Yields a model's prediction for each line, {} for an empty one.

    At the end it prints on standard error how many texts were cut; and how many lines were two
    texts, if the model does not say whether it reads one or two.

    Args:
      lines: each with its place, for messages.
      origin: the origin of the lines, for messages.
      at_once: the number of lines that are read and predicted together.
    """
    split = 0

    def counted() -> Iterator[_Line]:
        nonlocal split
        for line, where in lines:
            split += SEPARATOR in line and not looks_like_json(line)
            yield line, where

    parsed = _examples(model, counted())
    while some := list(islice(parsed, at_once)):
        examples = [example for example, _ in some if example is not None]
        found = iter(model.predict(examples, origin) if examples else ())
        for example, further in some:
            if example is None:
                yield {}
            else:
                yield with_further(further, model.family.show(example, next(found), model.settings))
    for tokens, count in model.cut.items():
        if count:
            texts = f"{count:,} text{'s' * (count > 1)}"
            print(
                f"warning: {texts} cut to {tokens} tokens: the rest was not read", file=sys.stderr
            )
    if split and getattr(model.family, "pairs", True) is None:
        print(
            f"{split:,} of the lines are two texts (A{SEPARATOR}B); one text with "
            f'{SEPARATOR.strip()} in it is written as {{"text": "..."}}',
            file=sys.stderr,
        )


def _examples(model: FineTuned, lines: Iterable[_Line]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields the example of each line, None for an empty one, and the fields it does not use."""
    family = model.family
    for line, where in lines:
        if not line.strip():
            yield None, {}
            continue
        fields = json_object(line, where) if looks_like_json(line) else {}
        used = {}
        for name in family.fields:
            column = model.columns.get(name, name)
            column = column if column in fields else name
            if column in fields:
                used[name] = fields.pop(column)
        yield family.parse(json.dumps(used, ensure_ascii=False) if used else line, where), fields


def with_further(further: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """An answer, with the other fields of its line before it."""
    renamed = {}
    for name, value in further.items():
        while name in answer or name in renamed:
            name = f"given_{name}"
        renamed[name] = value
    return renamed | answer
