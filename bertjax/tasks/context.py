"""Windows over a document: which units a sequence contains, and which outputs are taken from it."""

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """The units start..stop-1 of a document; it gives the outputs of `owned`, int64, ascending."""

    start: int
    stop: int
    owned: np.ndarray


def windows(sizes: np.ndarray, room: int, *, overlapping: bool) -> list[Window]:
    """Cuts a document into windows; each unit is owned by the window where its context is widest.

    A window is filled with units until the next unit does not fit. The last window ends with the
    document and is filled from there to the left, so that it is as full as the others.

    The context of a unit has as many tokens as its smaller side, left or right. A side that reaches
    the border of the document counts as unlimited, because nothing is missing there.

    Args:
      sizes: int [units], the tokens of each unit, at most `room`, the tokens of a window.
      overlapping: whether a window begins in the middle of the one before it; else at its end.
    """
    count = len(sizes)
    ends = np.concatenate([[0], np.cumsum(sizes)])  # unit u has the tokens ends[u]..ends[u + 1] - 1

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
    owned = [np.flatnonzero(owner == number) for number in range(len(spans))]
    return [Window(*span, units) for span, units in zip(spans, owned, strict=True) if len(units)]
