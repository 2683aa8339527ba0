"""SIGTERM, SIGINT and SIGHUP: they end a program at once with a message, or after it has saved."""

import contextlib
import logging
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from bertjax.base.errors import EXIT_STOPPED

EXIT_INTERRUPTED = 130  # the usual exit code in shells

# These come when a machine is preempted, after Ctrl-C, and when a terminal is closed (a lost ssh).
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_SECONDS_BETWEEN_LOOKS = 0.5  # at the parent

_log = logging.getLogger(__name__)


def end_by_signals() -> None:
    """Makes these signals end the process from now on, with a message and an exit code.

    The process ends immediately, as after `kill -9`; saved files are complete at every moment. An
    exception would be unsafe: in a callback (above all from Python's garbage collector into JAX) it
    is lost, and the program continues; or it crashes C++ code that does not expect exceptions.

    Python calls signal handlers only on the main thread, and not while that runs C++ code, such as
    a compilation of many minutes. So the signal also wakes another thread, and the first of the two
    ends the process. A signal that was ignored before (such as SIGHUP by `nohup`) stays ignored.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    threading.Thread(target=_end_when_woken, args=(woken,), name="signals", daemon=True).start()


def _end_when_woken(woken: int) -> None:
    while True:
        number = signal.Signals(os.read(woken, 1)[0])
        if signal.getsignal(number) is end:  # no other handler was set
            end(number)


def stop_with_parent(parent: int) -> None:
    """Sends this process SIGTERM when its parent has ended (or has already), even by kill -9."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


_ending = threading.RLock()  # the first thread takes it; the other one waits until the process ends


def end(number: int, frame: object = None) -> NoReturn:
    """Ends the process because of a signal; it is a handler, and any thread may call it."""
    with _ending:
        interrupted = number == signal.SIGINT
        what = "interrupted" if interrupted else f"stopped by {signal.Signals(number).name}"
        with contextlib.suppress(OSError):  # the terminal may be closed
            os.write(2, f"{what}: the same command goes on from what is saved\n".encode())
        os._exit(EXIT_INTERRUPTED if interrupted else EXIT_STOPPED)


@contextlib.contextmanager
def catch_signals(numbers: Sequence[signal.Signals] = STOPPING) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a signal has come; in the block, signals end nothing.

    A second signal of the same kind does what it did before the block, but not SIGHUP: the system
    and the shell both send it when a terminal is closed. Only the main thread can set handlers; on
    another thread, the function returns False.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: set[int] = set()
    handlers = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in handlers.items() if old != signal.SIG_IGN}

    def handle(number: int, frame: object) -> None:
        if number == signal.SIGHUP:
            _leave_the_terminal()
        elif number in came:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
            return
        came.add(number)
        _log.warning("stopping after this step (%s)", signal.Signals(number).name)

    for caught in before:
        signal.signal(caught, handle)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_the_terminal() -> None:
    """Redirects output from a closed terminal, because a failed write would prevent the save."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # the stream may be closed
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
