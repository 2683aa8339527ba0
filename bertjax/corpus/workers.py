"""Worker processes: they leave signals to the main process, and end when it ends."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from bertjax.base.errors import InputError


class _Worker(SpawnProcess):
    def start(self) -> None:
        """Starts the process with SIGINT blocked, so that only the main process gets Ctrl-C."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Runs in the new process."""
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().run()


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a worker
    parent.join()
    os._exit(1)


class _Context(SpawnContext):
    Process = _Worker


def worker_context() -> SpawnContext:
    """The context that makes worker processes; see `multiprocessing.get_context`."""
    # If the main process is ended by a signal, Python's resource tracker cleans up after it. Its
    # warnings about that would only confuse the user.
    given = [each for each in os.environ.get("PYTHONWARNINGS", "").split(",") if each]
    os.environ["PYTHONWARNINGS"] = ",".join(dict.fromkeys([*given, "ignore:resource_tracker"]))
    return _Context()


@contextlib.contextmanager
def worker_pool(workers: int, **options: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool of worker processes; `options` are those of `ProcessPoolExecutor`.

    Raises:
      InputError: a worker was killed.
    """
    options = {"mp_context": worker_context()} | options
    try:
        with ProcessPoolExecutor(workers, **options) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {workers} worker processes was killed, most likely by the system for lack of "
            "memory: give fewer --workers; the same command goes on from the shards that are done"
        ) from error
