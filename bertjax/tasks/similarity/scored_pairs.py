"""Pairs of texts with a gold number that says how alike they are.

A source is FILE, or FORMAT:FILE for a file of a published data set:

  FILE            columns text, text_b and score, perhaps source: .csv, .tsv or .jsonl (see
                  `bertjax.tasks.rows`)
  sts:FILE        STS 2012 to 2016 of SemEval, joined: source, score and two sentences in each line,
                  without names of columns
  sick:FILE       SICK: sentence_A, sentence_B and relatedness_score
  sts-b:FILE      STS-B of GLUE: sentence1, sentence2 and score, by genre
  benchmark:FILE  the STS Benchmark, of which STS-B is made: without names of columns, and with the
                  scores of the test set

Published files have a tab between columns, and their quotes mean nothing. Files may be compressed
(.gz .xz .bz2 .zst).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.tasks import official_files, scores
from bertjax.tasks.rows import FileRow, read_rows


class ScoredPair(NamedTuple):
    """Two texts, their gold number on the data set's scale, and their source (or "")."""

    text: str
    text_b: str
    score: float
    source: str


class _Format(NamedTuple):
    """The columns of a file."""

    text: str
    text_b: str
    score: str
    source: str
    columns: tuple[str, ...] = ()  # all, if the file has no line with them
    optional: int = 0  # how many of the last columns a line may lack


_TABLE = _Format("text", "text_b", "score", "source")
_SENTENCES = ("sentence1", "sentence2", "score")
FORMATS = {
    "sts": _Format(*_SENTENCES, "source", ("source", "score", "sentence1", "sentence2")),
    "sick": _Format("sentence_A", "sentence_B", "relatedness_score", "source"),
    "sts-b": _Format(*_SENTENCES, "genre"),
    "benchmark": _Format(
        *(*_SENTENCES, "genre"),
        ("genre", "filename", "year", "index", "score", "sentence1", "sentence2", "from1", "from2"),
        optional=2,
    ),
}


def read_pairs(source: str) -> list[ScoredPair]:
    """Reads the pairs of a file, in order; `source` is FILE or FORMAT:FILE."""
    name, _, rest = source.partition(":")
    published = name in FORMATS and bool(rest)
    path, form = Path(rest if published else source), FORMATS[name] if published else _TABLE
    if not official_files.exists(path.parent, path.name):
        raise InputError(f"{source}: no such file: name one, or FORMAT:FILE ({', '.join(FORMATS)})")
    rows = _published_rows(path, form) if published else read_rows(path.parent, path.name)
    return official_files.nonempty((_pair(row, form) for row in rows), path)


def _published_rows(path: Path, form: _Format) -> Iterator[FileRow]:
    numbered = enumerate(official_files.lines(path.parent, path.name), start=1)
    lines = ((number, line) for number, line in numbered if line)
    columns = form.columns or tuple(next(lines, (0, ""))[1].split("\t"))
    named = f"the format ({', '.join(columns)})"
    for count, (number, line) in enumerate(lines):
        where, values = f"{path} line {number}", line.split("\t")
        official_files.check_width(where, values, len(columns), named, optional=form.optional)
        yield FileRow(count, where, dict(zip(columns, values, strict=False)))


def _pair(row: FileRow, form: _Format) -> ScoredPair:
    score, source = row.real(form.score), str(row.fields.get(form.source, ""))
    return ScoredPair(row.text(form.text), row.text(form.text_b), score, source)


def correlations(pairs: Sequence[ScoredPair], similarities: np.ndarray) -> dict[str, float]:
    """Correlations of the gold scores and the similarities [N] of N pairs, in percent.

    The main metric is "spearman" over all pairs, as of SentEval and MTEB: not the mean over
    sources. Equal numbers have the mean of their ranks. A correlation is not defined if one side is
    constant or not finite; it is 0 then, as in `bertjax.tasks.scores`, and a warning says so.

    Returns "spearman" and "pearson"; and, where the pairs have sources, "spearman_SOURCE" and
    "pearson_SOURCE" for each, in alphabetical order.
    """
    gold = np.array([pair.score for pair in pairs])
    sources = np.array([pair.source for pair in pairs])
    subsets = {"": np.full(len(pairs), True)}
    subsets |= {f"_{name}": sources == name for name in sorted({*sources.tolist()} - {""})}
    result = {}
    for suffix, subset in subsets.items():
        sides = gold[subset], similarities[subset]
        result[f"spearman{suffix}"] = scores.spearman(*sides)
        result[f"pearson{suffix}"] = scores.pearson(*sides)
        if not scores.vary(*sides):
            print(
                f"warning: spearman{suffix} and pearson{suffix} are not defined, and count 0: the "
                "gold scores or the similarities are all the same or not finite",
                flush=True,
            )
    return result
