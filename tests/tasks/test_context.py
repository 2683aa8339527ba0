"""Windows over a document: each unit is owned by one window, and windows are full."""

import numpy as np
import pytest

from bertjax.tasks.context import windows


def owners(found, count):
    """The number of the window that owns each unit; fails unless exactly one window does."""
    owner = np.full(count, -1)
    for number, window in enumerate(found):
        assert np.all(owner[window.owned] == -1)
        assert np.all((window.start <= window.owned) & (window.owned < window.stop))
        owner[window.owned] = number
    assert np.all(owner >= 0)
    return owner


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_any_document(seed, overlapping):
    rng = np.random.default_rng(seed)
    room = int(rng.integers(1, 40))
    sizes = rng.integers(1, int(rng.integers(1, room + 1)) + 1, int(rng.integers(0, 80)))
    found = windows(sizes, room, overlapping=overlapping)
    owners(found, len(sizes))
    shown = np.array([sizes[window.start : window.stop].sum() for window in found])
    assert np.all(shown <= room)
    for window, size in zip(found, shown, strict=True):
        # A window is full: nothing fits to its right or, at the document's end, to its left.
        if window.stop < len(sizes):
            assert size + sizes[window.stop] > room
        elif window.start:
            assert size + sizes[window.start - 1] > room
    if len(sizes):
        assert (found[0].start, found[-1].stop) == (0, len(sizes))


def test_a_document_that_fits_is_one_window():
    for overlapping in (False, True):
        (window,) = windows(np.array([3, 4, 3]), 10, overlapping=overlapping)
        assert (window.start, window.stop, window.owned.tolist()) == (0, 3, [0, 1, 2])
    assert windows(np.array([], np.int64), 10, overlapping=True) == []


def test_places():
    sizes = np.full(10, 2)
    found = windows(sizes, 8, overlapping=False)
    # The last window ends with the document and is filled to the left; unit 7 has more context in
    # it.
    assert [(w.start, w.stop, w.owned.tolist()) for w in found] == [
        (0, 4, [0, 1, 2, 3]),
        (4, 8, [4, 5, 6]),
        (6, 10, [7, 8, 9]),
    ]
    found = windows(sizes, 8, overlapping=True)
    assert [(w.start, w.stop, w.owned.tolist()) for w in found] == [
        (0, 4, [0, 1, 2]),
        (2, 6, [3, 4]),
        (4, 8, [5, 6]),
        (6, 10, [7, 8, 9]),
    ]


def test_overlapping_windows_give_context_for_twice_the_work():
    """In long documents, each unit has a quarter of a window as context on both sides."""
    rng = np.random.default_rng(0)
    sizes, room = rng.integers(1, 9, 5000), 256
    ends = np.concatenate([[0], np.cumsum(sizes)])
    found = windows(sizes, room, overlapping=True)
    owner = owners(found, len(sizes))
    for unit in range(len(sizes)):
        window = found[owner[unit]]
        if window.start and window.stop < len(sizes):
            left = ends[unit] - ends[window.start]
            right = ends[window.stop] - ends[unit + 1]
            assert min(left, right) >= room / 4 - 2 * 8
    work = sum(ends[window.stop] - ends[window.start] for window in found)
    assert 1.9 < work / ends[-1] < 2.1
