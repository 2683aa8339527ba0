"""Makes batches ahead of the step, on other threads, and puts them on the devices."""

import collections
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")
Waiting = collections.deque[tuple[int, Future[T]]]


class Feed(Generic[T]):
    """Calls `make(step)` for the next steps while the current step runs.

    Args:
      make: maps a step to a batch on the devices; it must be pure, because calls are unordered.
      ahead: the most batches that are ready in advance, and the number of threads.
      busy: whether the devices still have work; then it costs nothing to wait for a batch.

    Attributes:
      waited: the seconds in which the caller waited for a batch while the devices had no work.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        steps: range,
        *,
        ahead: int = 2,
        busy: Callable[[], bool] = lambda: False,
    ):
        self._make, self._steps, self._ahead, self._busy = make, steps, ahead, busy
        self.waited = 0.0

    def __iter__(self) -> Iterator[tuple[int, T]]:
        with ThreadPoolExecutor(self._ahead, thread_name_prefix="feed") as pool:
            waiting: Waiting[T] = collections.deque()
            try:
                for step in self._steps:
                    waiting.append((step, pool.submit(self._make, step)))
                    if len(waiting) > self._ahead:
                        yield self._take(waiting)
                while waiting:
                    yield self._take(waiting)
            finally:
                for _, future in waiting:
                    future.cancel()

    def _take(self, waiting: Waiting[T]) -> tuple[int, T]:
        step, future = waiting.popleft()
        while not future.done() and self._busy():
            wait([future], timeout=0.001)
        start = time.perf_counter()
        batch = future.result()
        self.waited += time.perf_counter() - start
        return step, batch
