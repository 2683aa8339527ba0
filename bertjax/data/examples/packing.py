"""Decides which text stands in a row of packed documents.

A document is cut into pieces of `room` tokens; the rest is one more piece. The place of the rest
among the pieces is drawn anew in every epoch, which moves the borders between them; their lengths
stay the same.

Rows are packed by the histogram of these lengths alone (Krell et al., arXiv 2107.02027). The result
is a short list of compositions, such as "512 rows have a piece of 900 tokens and one of 120". In
each epoch, the pieces of a length go to the places for that length in a random order, and the rows
are shown in a random order. So every piece is shown once in an epoch, and any row of any epoch is
made alone.
"""

import bisect
from typing import NamedTuple

import numpy as np

from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws, permute
from bertjax.data.examples.layout import ragged_arange
from bertjax.data.examples.mixture import mixture_of


class Composition(NamedTuple):
    """Rows whose pieces have the same lengths."""

    lengths: tuple[tuple[int, int], ...]  # (length, how many pieces of it a row has)
    rows: int


def pack(counts: np.ndarray) -> list[Composition]:
    """Packs pieces into rows by their lengths: the longest first, each where it fits best.

    Rows of equal content are treated together, so the time depends on the lengths, and not on the
    number of pieces. `counts`, int [S + 1], says how many pieces have each length from 0 to S, that
    of a row.
    """
    size = len(counts) - 1
    packed: dict[int, list[Composition]] = {}  # by the free places of a row
    gaps: list[int] = []  # the keys of `packed`, sorted

    def put(gap: int, composition: Composition) -> None:
        if gap not in packed:
            packed[gap] = []
            bisect.insort(gaps, gap)
        packed[gap].append(composition)

    def take(number: int) -> tuple[int, Composition]:
        gap = gaps[number]
        composition = packed[gap].pop()
        if not packed[gap]:
            del packed[gap], gaps[number]
        return gap, composition

    for length in range(size, 0, -1):
        left = int(counts[length])
        while left:
            fullest = bisect.bisect_left(gaps, length)
            is_new = fullest == len(gaps)
            gap, (lengths, rows) = (size, Composition((), left)) if is_new else take(fullest)
            # A row that has just got a piece is fuller than before, so it also gets the next one.
            times = min(gap // length, left)
            used = min(rows, left // times)
            put(gap - times * length, Composition((*lengths, (length, times)), used))
            if used < rows and not is_new:
                put(gap, Composition(lengths, rows - used))
            left -= used * times
    return [composition for same_gap in packed.values() for composition in same_gap]


class Pieces(NamedTuple):
    """The T pieces of R rows, row after row; all arrays are int64 [T]."""

    row: np.ndarray  # in range(R)
    column: np.ndarray  # where its sequence begins
    start: np.ndarray  # the position in the store of its first token
    length: np.ndarray  # its tokens, without special ones


class RowPacker:
    """Finds the pieces in any row of one stream; each source has rows of its own."""

    def __init__(self, store: TokenStore, *, length: int, specials: int, draws: Draws):
        self._room, self._draws = length - specials, draws
        self._documents = store.document_starts
        self._mixture = mixture_of(store, draws, self._room)
        self._begins, self._class_starts = _pieces_by_length(store, self._room)

        compositions, places, rows = [], [], []
        for starts in self._class_starts:
            counts = np.concatenate([np.zeros(specials, np.int64), np.diff(starts)])
            of_source = pack(counts)
            compositions += of_source
            places += _places(of_source, length, specials)
            rows.append(sum(composition.rows for composition in of_source))
        # All rows are numbered: source after source, composition after composition.
        self._source_rows = _starts(rows)  # [sources + 1]
        self._composition_rows = _starts([each.rows for each in compositions])
        self._composition_places = _starts([each.shape[1] for each in places])
        self._lengths, self._columns, self._ranks = np.concatenate(places, axis=1)

    def pieces(self, index: np.ndarray) -> Pieces:
        """The pieces in rows `index` of the stream, int64 [R]."""
        source, rank = self._mixture.locate(index)
        first = self._source_rows[source]
        rows = self._source_rows[source + 1] - first
        epoch, turn = np.divmod(rank, rows)
        shown = first + permute(turn, rows, self._draws.keys("order of rows", source, epoch))
        composition = np.searchsorted(self._composition_rows, shown, side="right") - 1
        number = shown - self._composition_rows[composition]  # among the rows of its composition

        first = self._composition_places[composition]
        count = self._composition_places[composition + 1] - first
        place = ragged_arange(first, count)
        row = np.repeat(np.arange(len(index)), count)
        source, epoch = source[row], epoch[row]
        length = self._lengths[place]
        first = self._class_starts[source, length]
        count = self._class_starts[source, length + 1] - first
        keys = self._draws.keys("order of pieces", source, length, epoch)
        piece = first + permute(self._ranks[place] + number[row], count, keys)
        return Pieces(row, self._columns[place], self._start(self._begins[piece], epoch), length)

    def _start(self, begin: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        """The begins of pieces in this epoch; `begin` [T] has them for a rest that is last."""
        document = np.searchsorted(self._documents, begin, side="right") - 1
        first = self._documents[document]
        whole, rest = np.divmod(self._documents[document + 1] - first, self._room)
        place = self._draws.below(whole + 1, "place of the rest", document, epoch)
        number = (begin - first) // self._room
        moved = begin + np.where(number >= place, rest, 0)
        return np.where(number == whole, first + place * self._room, moved)


def _pieces_by_length(store: TokenStore, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The begins of pieces whose rest is last, by source and length; each length's offset."""
    begins, class_starts, total = [], [], 0
    for source in store.sources:
        starts = store.document_starts[source.first_document : source.last_document_exclusive + 1]
        whole, rest = np.divmod(np.diff(starts), room)
        counts = np.bincount(rest, minlength=room + 1)
        by_rest = np.argsort(rest.astype(np.min_scalar_type(room)), kind="stable")[counts[0] :]
        begins.append(starts[by_rest] + whole[by_rest] * room)
        begins.append(np.repeat(starts[:-1], whole) + room * ragged_arange(0 * whole, whole))
        counts[0], counts[room] = 0, len(begins[-1])
        class_starts.append(total + _starts(counts))
        total = class_starts[-1][-1]
    return np.concatenate(begins), np.stack(class_starts)


def _places(compositions: list[Composition], size: int, specials: int) -> list[np.ndarray]:
    """The lengths, columns and first ranks of the pieces of each composition, int64 [3, pieces]."""
    taken = np.zeros(size + 1, np.int64)
    found = []
    for lengths, rows in compositions:
        length, times = np.array(lengths).T
        ranks = np.repeat(taken[length], times) + rows * ragged_arange(0 * times, times)
        taken[length] += rows * times
        length = np.repeat(length, times)
        found.append(np.stack([length - specials, np.cumsum(length) - length, ranks]))
    return found


def _starts(counts: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
