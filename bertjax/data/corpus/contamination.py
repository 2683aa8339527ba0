"""Texts of tasks, and their n-grams in documents (GPT-3, arXiv 2005.14165, appendix C).

A document is contaminated if it has 13 words in a row that a text of a task has, or a whole text of
8 to 12 words. Shorter texts are not looked for. What is in more than 10 documents is a common
phrase, and ignored.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from bertjax.base.files import atomic_write
from bertjax.data.corpus.ngrams import ngram_hashes, word_hashes, words

LONGEST, SHORTEST = 13, 8  # words
MOST_DOCUMENTS = 10  # that have an n-gram which is no common phrase
_BITS = 24
_REST = np.uint64(64 - _BITS)


class Match(NamedTuple):
    """An n-gram of a task in a document: its number, its place among the words, its length."""

    gram: int
    place: int
    length: int


class TaskTexts:
    """The n-grams of the texts of tasks; `long` texts were used, `short` ones were too short."""

    def __init__(
        self, grams: np.ndarray, files: np.ndarray, lengths: Sequence[int], counts: Sequence[int]
    ):
        self._grams, self._files, self._lengths = grams, files, lengths
        # Most n-grams of a document are no task's, which their first bits tell fast.
        self._started = np.zeros(1 << _BITS, bool)
        self._started[grams >> _REST] = True
        self.long, self.short = counts

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]]) -> Self:
        """The n-grams of texts, each with the number of its file; the first file of each counts."""
        long = short = 0
        grams, files, lengths = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)], set()
        for file, text in texts:
            hashes = word_hashes(words(text))
            n = min(LONGEST, len(hashes))
            if n < SHORTEST:
                short += 1
                continue
            long += 1
            lengths.add(n)
            grams.append(ngram_hashes(hashes, n))
            files.append(np.full(len(grams[-1]), file, np.int32))
        unique, first = np.unique(np.concatenate(grams), return_index=True)
        return cls(unique, np.concatenate(files)[first], sorted(lengths), (long, short))

    def save(self, path: Path) -> None:
        """Writes them to a file."""
        with atomic_write(path) as file:
            np.savez(
                file,
                grams=self._grams,
                files=self._files,
                lengths=np.array(self._lengths, np.int64),
                counts=np.array([self.long, self.short]),
            )

    @classmethod
    def open(cls, path: Path) -> Self:
        """Reads what `save` wrote."""
        with np.load(path) as file:
            numbers = (file[name].tolist() for name in ("lengths", "counts"))
            return cls(file["grams"], file["files"], *numbers)

    def find(self, hashes: np.ndarray) -> list[Match]:
        """The n-grams of tasks in a document, whose words have the hashes uint64 [W]."""
        found = []
        for n in self._lengths:
            grams = ngram_hashes(hashes, n)
            for place in np.nonzero(self._started[grams >> _REST])[0].tolist():
                at = int(np.searchsorted(self._grams, grams[place]))
                if at < len(self._grams) and self._grams[at] == grams[place]:
                    found.append(Match(at, place, n))
        return found

    def file(self, gram: int) -> int:
        """The number of the file that an n-gram is from."""
        return int(self._files[gram])
