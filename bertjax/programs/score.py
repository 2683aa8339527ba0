"""Scores what a model knows of grammar: how often it prefers the grammatical sentence of a pair."""

from typing import Any

import numpy as np

from bertjax.base.checks import check_output
from bertjax.base.cloud_storage import path_of
from bertjax.base.files import write_json
from bertjax.base.limits import Count, check
from bertjax.base.validation import check_numbers
from bertjax.inference.likelihood import log_likelihoods
from bertjax.inference.scored_rows import TOKEN
from bertjax.lab.minimal_pairs.accuracy import Accuracy, by_name, judged, over_pairs, over_paradigms
from bertjax.lab.minimal_pairs.data import read_pairs
from bertjax.lab.minimal_pairs.pairs import Pair
from bertjax.runs.source import open_model


def run(
    model: str,
    data: str,
    masking: str = TOKEN,
    most: int | None = None,
    output: str | None = None,
    part: str = "",
) -> dict[str, Any]:
    """Prints the accuracy by phenomenon and overall.

    Args:
      data: files or folders of minimal pairs (`bertjax.lab.minimal_pairs.data`).
      masking: "token" or "word" (`bertjax.inference.scored_rows.MaskedRows`).
      most: how many pairs of each paradigm to score, the first ones; None: all.
      part: the part of a run's model: "causal" reads left to right what the objective "hybrid" has
        trained; "": the one that all programs open.

    Returns:
      "model", "data", "masking" (None for a model that reads left to right), "most" and "pairs",
      their number; "overall", the accuracy as the mean over paradigms; "over_pairs", the mean over
      pairs; and "fields", "phenomena" and "paradigms", name -> accuracy. An accuracy is
      {"accuracy": percent, "stderr": percent or None, "pairs": number}. A pair whose sentences have
      the same score counts half.

    Raises:
      InputError: there is no such model, or it predicts no tokens; the data cannot be read; a
        sentence is too long for the model; the output cannot be written.
    """
    check("--most", most, Count | None)
    check_numbers("--most", most)
    if output:
        check_output(output)
    pairs = read_pairs(data, most)
    opened = open_model(model, part=part)
    print(opened.summary(), flush=True)
    texts = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    scores = log_likelihoods(
        opened, texts, masking, where=lambda number: pairs[number % len(pairs)].where
    )
    right = judged(*np.split(scores, 2))
    paradigms = by_name(right, [pair.uid for pair in pairs])
    result = {
        "model": model,
        "data": data,
        "masking": None if opened.spec.causal else masking,
        "most": most,
        "pairs": len(pairs),
        "overall": over_paradigms(paradigms)._asdict(),
        "over_pairs": over_pairs(right)._asdict(),
        **{
            name: {each: accuracy._asdict() for each, accuracy in found.items()}
            for name, found in (
                ("fields", by_name(right, [pair.field for pair in pairs])),
                ("phenomena", by_name(right, [pair.term for pair in pairs])),
                ("paradigms", paradigms),
            )
        },
    }
    _print_table(pairs, right, paradigms)
    if output:
        write_json(path_of(output), result)
    return result


def _print_table(pairs: list[Pair], right: np.ndarray, paradigms: dict[str, Accuracy]) -> None:
    """Prints a line for each phenomenon; a paradigm that belongs to none has its own line."""
    lines = by_name(right, [pair.term or pair.uid for pair in pairs])
    lines |= {
        f"mean over {len(paradigms)} paradigms": over_paradigms(paradigms),
        "mean over pairs": over_pairs(right),
    }
    width = max(map(len, lines))
    print(f"{'':{width}}   accuracy, %    pairs")
    for name, found in lines.items():
        error = "" if found.stderr is None else f"± {found.stderr:4.1f}"
        print(f"{name:{width}}  {found.accuracy:5.1f} {error:6}  {found.pairs:7,}")
