"""Windows over a document: which of its parts a sequence shows, and which it is to tell of."""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """Parts start..stop-1 of a document are shown; `told` (int64, ascending) are told of."""

    start: int
    stop: int
    told: np.ndarray


def windows(sizes: np.ndarray, room: int, *, overlapping: bool) -> list[Window]:
    """Windows such that each part of a document is told of in one, where its context is widest.

    A window is filled with parts until the next does not fit; the last one ends with the document
    and is filled from there to the left, so that no window has less context than the document
    has. Context is wide where the tokens on the side that has fewer are many; the document's own
    border is no lack of any.

    Args:
      sizes: int [parts], the tokens of each part; none has more than `room`.
      room: the tokens of a window.
      overlapping: the next window begins half a window behind the last; otherwise where that ends.
    """
    count = len(sizes)
    ends = np.concatenate([[0], np.cumsum(sizes)])  # part p is tokens ends[p]..ends[p + 1] - 1

    spans, start = [], 0
    while start < count:
        stop = int(np.searchsorted(ends, ends[start] + room, "right")) - 1
        if stop == count:
            start = int(np.searchsorted(ends, ends[count] - room))
            spans.append((start, count))
            break
        spans.append((start, stop))
        half = int(np.searchsorted(ends, ends[start] + room / 2))
        start = min(max(half, start + 1), stop) if overlapping else stop

    widest, owner = np.full(count, -1.0), np.zeros(count, np.int64)
    for number, (start, stop) in enumerate(spans):
        left = ends[start:stop] - (ends[start] if start else -np.inf)
        right = (ends[stop] if stop < count else np.inf) - ends[start + 1 : stop + 1]
        context = np.minimum(left, right)
        wider = context > widest[start:stop]
        widest[start:stop][wider], owner[start:stop][wider] = context[wider], number
    told = [np.flatnonzero(owner == number) for number in range(len(spans))]
    return [Window(*span, parts) for span, parts in zip(spans, told, strict=True) if len(parts)]
