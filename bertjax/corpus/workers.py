"""Worker processes, which leave signals to the main process, and end when it does."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.context import SpawnContext, SpawnProcess


class _Worker(SpawnProcess):
    def start(self) -> None:
        """With SIGINT blocked, as it stays in the new process: Ctrl-C is for the main process."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """In the new process."""
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().run()


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, even by kill -9."""
    multiprocessing.parent_process().join()
    os._exit(1)


class _Context(SpawnContext):
    Process = _Worker


def worker_context() -> SpawnContext:
    """What makes them, and what they share: see `multiprocessing.get_context`."""
    # Where the main process ends at once, Python's resource tracker tidies up after it; what it
    # would warn of there is nobody's business.
    given = [each for each in os.environ.get("PYTHONWARNINGS", "").split(",") if each]
    os.environ["PYTHONWARNINGS"] = ",".join(dict.fromkeys([*given, "ignore:resource_tracker"]))
    return _Context()
