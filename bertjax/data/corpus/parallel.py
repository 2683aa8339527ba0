"""Parallel sources: pairs of a text and its translation.

  parallel:A|B              two files of aligned lines
  parallel:GLOB             a line has two columns, with a tab between them
  parallel:GLOB#field,field    a line is a JSON object, two fields of it are the pair

A pair is a document of two texts. Neither is split into sentences.
"""

import glob
from collections.abc import Iterator
from itertools import islice

from bertjax.base.errors import InputError
from bertjax.data.corpus.json_lines import JsonLines
from bertjax.data.corpus.line_files import (
    LineFiles,
    at_line,
    decoded_line,
    decompressor,
    files,
    lines,
)
from bertjax.data.corpus.source import Document, Extent, Range, Skip, Source

FORMS = "parallel:A|B, parallel:GLOB.tsv or parallel:GLOB.jsonl#FIELD,FIELD"


def open_parallel(place: str) -> Source:
    """Opens the source whose spec is "parallel:" and `place`."""
    if "|" in place:
        names = place.split("|")
        if len(names) == 2 and all(names):
            return _AlignedFiles(*names)
    elif "#" in place:
        pattern, _, fields = place.rpartition("#")
        names = fields.split(",")
        if pattern and len(names) == 2 and all(names):
            return JsonLines(pattern, *names)
    else:
        return _Columns(place)
    raise InputError(f"--source=parallel:{place}: write {FORMS}.")


class _AlignedFiles(Source):
    """Line n of one file is the translation of line n of the other."""

    def __init__(self, *names: str):
        self._names = names

    def extents(self) -> list[Extent]:
        found = [files(glob.escape(name))[0] for name in self._names]
        a, b = (file.name for file in found)
        counts = [sum(1 for _ in lines(name, 0)) for name in (a, b)]
        if counts[0] != counts[1]:
            raise InputError(
                f"{a} has {counts[0]:,} lines and {b} {counts[1]:,}: line n of one must be the "
                "translation of line n of the other."
            )
        divisible = not any(map(decompressor, (a, b)))
        version = "|".join(file.version for file in found).strip("|")
        size = sum(file.size for file in found)
        return [Extent(f"{a}|{b}", counts[0], size, divisible, version)]

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        names = range_.path.split("|")
        pairs = zip(*(lines(name, 0) for name in names), strict=True)
        for pair in islice(pairs, range_.start, range_.stop):
            texts = [
                decoded_line(line, name, offset, skip)
                for name, (offset, line) in zip(names, pair, strict=True)
            ]
            yield _pair(*texts)


class _Columns(LineFiles):
    """Two columns on each line; a line belongs to the range in which it begins."""

    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        path = range_.path
        for offset, line in self.lines(range_):
            text = decoded_line(line, path, offset, skip)
            if text is None:
                yield None
                continue
            columns = text.split("\t")
            if len(columns) != 2:
                problem = f"where a text, a tab and its translation belong: {text.strip()[:60]!r}."
                raise InputError(f"{at_line(path, offset)}: {len(columns)} columns, {problem}")
            yield _pair(*columns)


def _pair(a: str | None, b: str | None) -> Document | None:
    return None if a is None or b is None else [a.strip(), b.strip()]
