"""Predicts labels, numbers, choices, tags or answers for new text with a fine-tuned model."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bertjax.base.cloud_storage import in_bucket, path_of, reach
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.features.texts import decoded, read_texts
from bertjax.fine_tuning.fine_tuned import FineTuned, open_fine_tuned
from bertjax.tasks.official_files import ending
from bertjax.tasks.task import Family

STANDARD = "-"  # standard input, or output
_STANDARD_INPUT = "standard input"  # in messages

_AT_ONCE = 1_000  # lines that are predicted together, if the input is not typed


def run(model: str, source: str, output: str) -> None:
    """Writes a JSON object for each line of the input, in the same order.

    Args:
      model: RUN of fine-tuning (RUN/CHOICE over fixed features), an ensemble of such runs, or
        hf:FOLDER, hf:NAME of a fine-tuned encoder.
      source: a text file (.gz .xz .zst too), or "-". A line is what the model's family parses:
        "A", "A ||| B", words with spaces between them, or a JSON object.
      output: a file, whole or absent, here or in a bucket; or "-".

    Raises:
      InputError: the model or the file is missing; the output exists; a line cannot be used.
    """
    if ending(Path(source)) in (".csv", ".tsv"):
        raise InputError(
            f"--input={source}: a table, but each line would be read as a text: write "
            "a text on each line, 'A ||| B' for two, or a JSON object"
        )
    _check_output(output)
    for flag, name, stream in (("input", source, sys.stdin), ("output", output, sys.stdout)):
        if name == STANDARD and stream is None:
            raise InputError(f"--{flag}=-: standard {flag} is closed: name a file")
    origin = _STANDARD_INPUT if source == STANDARD else source
    lines = decoded(sys.stdin.buffer, origin) if source == STANDARD else read_texts(source)
    fine_tuned = open_fine_tuned(model)
    print(fine_tuned.summary, file=sys.stderr)
    if source != STANDARD:  # errors in a file are found before the first answer
        for _ in _examples(fine_tuned.family, read_texts(source), origin):
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


def _check_output(output: str) -> None:
    if output == STANDARD:
        return
    target = path_of(output)
    reach(target.parent, write=True)
    if target.exists():
        raise InputError(f"--output={output}: is there already: choose another, or remove it")
    if not (in_bucket(target) or target.parent.is_dir()):
        raise InputError(f"--output={output}: no folder {target.parent}: make it")


def predictions(
    model: FineTuned, lines: Iterable[str], origin: str, at_once: int = _AT_ONCE
) -> Iterator[dict[str, Any]]:
    """Yields a model's prediction for each line that is not empty.

    At the end it prints on standard error how many texts were cut.

    Args:
      origin: the origin of the lines, for messages.
      at_once: the number of lines that are read and predicted together.
    """
    parsed = _examples(model.family, lines, origin)
    while examples := list(islice(parsed, at_once)):
        found = model.predict(examples, origin)
        for example, prediction in zip(examples, found, strict=True):
            yield model.family.show(example, prediction, model.settings)
    for tokens, count in model.cut.items():
        if count:
            texts = f"{count:,} text{'s' * (count > 1)}"
            print(
                f"warning: {texts} cut to {tokens} tokens: the rest was not read", file=sys.stderr
            )


def _examples(family: Family, lines: Iterable[str], origin: str) -> Iterator[Any]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield family.parse(line, f"{origin} line {number}")
