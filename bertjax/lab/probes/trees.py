"""Dependency trees of CoNLL-U files (https://universaldependencies.org/format.html)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.base.checks import check_file
from bertjax.base.errors import InputError
from bertjax.base.validation import integer
from bertjax.data.corpus.sources import lines
from bertjax.inference.features.texts import decoded

_ID, _FORM, _UPOS, _HEAD, _COLUMNS = 0, 1, 3, 6, 10
_PUNCTUATION = "PUNCT"


class Tree(NamedTuple):
    """A sentence and its dependencies.

    Attributes:
      words: n of them.
      heads: int64 [n], the number of each word's head, from 0; -1 for the root.
      punctuation: bool [n].
    """

    words: list[str]
    heads: np.ndarray
    punctuation: np.ndarray
    where: str

    @property
    def depths(self) -> np.ndarray:
        """int64 [n], the steps from each word to the root."""
        return np.array([len(path) - 1 for path in self._paths()])

    @property
    def distances(self) -> np.ndarray:
        """int64 [n, n], the steps between each two words."""
        n, paths = len(self.words), self._paths()
        above = np.zeros((n, n), bool)  # [word, what is on its path to the root]
        for word, path in enumerate(paths):
            above[word, path] = True
        depths = above.sum(1) - 1
        shared = above.astype(np.int64) @ above.T  # the length of what two paths share
        return depths[:, None] + depths[None] - 2 * (shared - 1)

    def _paths(self) -> list[list[int]]:
        """For each word, itself and all words above it, up to the root."""
        paths = []
        for word in range(len(self.words)):
            path = [word]
            while (head := int(self.heads[path[-1]])) >= 0:
                path.append(head)
            paths.append(path)
        return paths


def read_trees(path: Path) -> list[Tree]:
    """The trees of a file, which may be compressed.

    Lines of words that are written together, and of words that are not there ("3-4", "8.1"), are
    left out. Raises InputError for no sentence, lines with other columns or no head, and sentences
    without a root, with two roots, or with a circle.
    """
    check_file(path)
    trees = [_tree(rows, path) for rows in _sentences(path)]
    if not trees:
        raise InputError(f"{path}: no sentence in it: it must be a file of CoNLL-U")
    return trees


def _sentences(path: Path) -> Iterator[list[tuple[int, list[str]]]]:
    rows: list[tuple[int, list[str]]] = []
    texts = decoded((line for _, line in lines(str(path), 0)), str(path))
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            if rows:
                yield rows
            rows = []
        elif not text.startswith("#"):
            columns = text.split("\t")
            if len(columns) != _COLUMNS:
                raise InputError(
                    f"{path} line {number}: {len(columns)} columns between tabs, where CoNLL-U has "
                    f"{_COLUMNS}"
                )
            if columns[_ID].isdecimal():
                rows.append((number, columns))
    if rows:
        yield rows


def _tree(rows: Sequence[tuple[int, list[str]]], path: Path) -> Tree:
    where, heads = f"{path} line {rows[0][0]}", []
    for place, (number, columns) in enumerate(rows, start=1):
        head = integer(columns[_HEAD])
        if integer(columns[_ID]) != place:
            raise InputError(
                f"{path} line {number}: the word has the number {columns[_ID]:.80}, and is the "
                f"{place}th of its sentence: number the words from 1"
            )
        if head is None or not 0 <= head <= len(rows):
            raise InputError(
                f"{path} line {number}: its head is {columns[_HEAD]!r:.80}: it must be the number "
                "of a word of the sentence, or 0 for the root: take a file with dependencies"
            )
        heads.append(head - 1)
    if heads.count(-1) != 1:
        raise InputError(f"{where}: {heads.count(-1)} words have the head 0: a tree has one root")
    _check_no_circle(heads, where)
    return Tree(
        words=[columns[_FORM] for _, columns in rows],
        heads=np.array(heads, np.int64),
        punctuation=np.array([columns[_UPOS] == _PUNCTUATION for _, columns in rows]),
        where=where,
    )


def _check_no_circle(heads: list[int], where: str) -> None:
    for word in range(len(heads)):
        head, steps = heads[word], 0
        while head >= 0:
            head, steps = heads[head], steps + 1
            if steps > len(heads):
                raise InputError(f"{where}: the heads above word {word + 1} run in a circle")
