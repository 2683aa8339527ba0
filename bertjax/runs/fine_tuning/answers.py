"""What a fine-tuned model says of lines of new text, as objects of JSON."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from bertjax.runs.fine_tuning.fine_tuned import FineTuned
from bertjax.tasks.rows import json_object, looks_like_json
from bertjax.text.pairs import SEPARATOR

AT_ONCE = 1_000  # lines that are predicted together

Line = tuple[str, str]  # a line and its place, for messages


def numbered(texts: Iterable[str], origin: str) -> Iterator[Line]:
    """Lines of text, each with its place: "ORIGIN line 1" is the first."""
    return ((text, f"{origin} line {number}") for number, text in enumerate(texts, start=1))


def predictions(
    model: FineTuned, lines: Iterable[Line], origin: str, at_once: int = AT_ONCE
) -> Iterator[dict[str, Any]]:
    """Yields a model's prediction for each line, {} for an empty one, and reads `at_once` lines.

    At the end it prints on standard error how many texts were cut; and how many lines were two
    texts, if the model does not say whether it reads one or two.
    """
    split = 0

    def counted() -> Iterator[Line]:
        nonlocal split
        for line, where in lines:
            split += SEPARATOR in line and not looks_like_json(line)
            yield line, where

    parsed = examples_of(model, counted())
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


def examples_of(model: FineTuned, lines: Iterable[Line]) -> Iterator[tuple[Any, dict[str, Any]]]:
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
