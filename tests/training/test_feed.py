"""Batches that are made ahead: their order, their number, and their errors."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bertjax.training.feed import Feed
from tests.helpers.patience import PATIENCE


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("steps", [range(0), range(1), range(3, 17), range(2)])
def test_order(steps, ahead):
    def make(step):
        time.sleep(0.002 * (step % 3))  # later batches may be done before earlier ones
        return step * step

    assert list(Feed(make, steps, ahead=ahead)) == [(step, step * step) for step in steps]


@pytest.mark.parametrize("ahead", [1, 3])
def test_no_more_than_ahead_wait(ahead):
    started = []

    def make(step):
        started.append(step)
        return step

    feed = iter(Feed(make, range(100), ahead=ahead))
    for taken in range(1, 8):
        next(feed)
        assert len(started) <= taken + ahead
    feed.close()
    assert len(started) <= 7 + ahead


@pytest.mark.parametrize("ahead", [1, 3])
def test_as_many_as_ahead_are_begun(monkeypatch, ahead):
    """They are started before the caller waits for the first."""
    started = []

    class Pool(ThreadPoolExecutor):
        def submit(self, make, step):
            started.append(step)
            return super().submit(make, step)

    monkeypatch.setattr("bertjax.training.feed.ThreadPoolExecutor", Pool)
    feed = iter(Feed(lambda step: step, range(9), ahead=ahead))
    for taken in range(1, 4):
        next(feed)
        assert started == list(range(taken + ahead))


def test_batches_are_made_while_the_caller_works():
    both = threading.Barrier(2, timeout=PATIENCE)  # passed only if two are made at once

    def make(step):
        both.wait()
        return step

    assert [step for step, _ in Feed(make, range(6), ahead=2)] == list(range(6))


def test_an_exception_passes_through_at_its_step():
    def make(step):
        if step == 3:
            raise KeyError("step 3")
        return step

    taken = []
    with pytest.raises(KeyError, match="step 3"):
        for step, _ in Feed(make, range(9)):
            taken.append(step)
    assert taken == [0, 1, 2]


def test_breaking_off_ends_the_threads():
    before = threading.active_count()
    for step, _ in Feed(lambda step: step, range(10**9)):
        if step == 5:
            break
    assert threading.active_count() == before


def test_waited_is_the_time_spent_waiting(monkeypatch):
    """The clock advances by 1 whenever it is read: once before and once after each wait."""
    ticks = itertools.count()
    monkeypatch.setattr("bertjax.training.feed.time.perf_counter", lambda: next(ticks))
    feed = Feed(lambda step: step, range(7))
    assert feed.waited == 0
    assert [feed.waited for _ in feed] == [1, 2, 3, 4, 5, 6, 7]


def test_waiting_while_the_devices_are_busy_counts_as_none(monkeypatch):
    """The clock advances whenever the devices are busy."""
    enough, ticks = threading.Event(), 0

    def busy():
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            enough.set()
        return True

    monkeypatch.setattr("bertjax.training.feed.time.perf_counter", lambda: ticks)
    feed = Feed(lambda step: enough.wait(20), range(2), busy=busy)
    assert list(feed) == [(0, True), (1, True)]
    assert ticks >= 3
    assert feed.waited == 0
