"""Worker processes: they leave signals to the main process, and end when it ends."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from bertjax.base.errors import InputError
from bertjax.base.progress import Progress

_SECONDS_BETWEEN_LOOKS = 1.0

Job = TypeVar("Job")

_stop: Event | None = None  # the event that makes a worker stop early


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
    filters = [each for each in os.environ.get("PYTHONWARNINGS", "").split(",") if each]
    os.environ["PYTHONWARNINGS"] = ",".join(dict.fromkeys([*filters, "ignore:resource_tracker"]))
    return _Context()


@contextlib.contextmanager
def worker_pool(workers: int, **options: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool of worker processes; `options` are those of `ProcessPoolExecutor`."""
    options = {"mp_context": worker_context()} | options
    try:
        with ProcessPoolExecutor(workers, **options) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {workers} worker processes was killed, most likely by the system for lack of "
            "memory: give fewer --workers; the same command goes on from the shards that are done"
        ) from error


def run_jobs(
    work: Callable[[Job], Any],
    jobs: Sequence[Job],
    sizes: Sequence[int],
    *,
    workers: int,
    description: str,
    done: int = 0,
) -> None:
    """Does all jobs in worker processes and shows the progress.

    Args:
      work: does one job; it asks `stopping` now and then.
      sizes: the raw bytes of each job.
      done: the bytes of the jobs that were done before.
    """
    context = worker_context()
    stop = context.Event()
    with (
        Progress(description, done + sum(sizes), "B", initial=done, scale=True) as progress,
        worker_pool(
            min(workers, len(jobs)), mp_context=context, initializer=_start, initargs=(stop,)
        ) as pool,
    ):
        try:
            size_of = {pool.submit(work, job): size for job, size in zip(jobs, sizes, strict=True)}
            waiting = set(size_of)
            while waiting:  # progress is shown also while no shard ends
                ended, waiting = wait(waiting, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
                for future in ended:
                    future.result()
                number = len(jobs) - len(waiting)
                read = sum(size_of[future] for future in ended)
                progress.update(read, f"{number} of {len(jobs)} shards")
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _start(stop: Event) -> None:
    global _stop
    _stop = stop
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process uses one thread


def stopping() -> bool:
    """Whether this process is a worker that should stop, because another job has failed."""
    return _stop is not None and _stop.is_set()
