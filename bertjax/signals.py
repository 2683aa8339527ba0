"""SIGTERM, SIGINT and SIGHUP: they end a program at once, with a line; or stop what saves first."""

import contextlib
import logging
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from bertjax.errors import EXIT_STOPPED

EXIT_INTERRUPTED = 130  # as shells have it

# From a machine that is taken away, from Ctrl-C, and from a terminal that is gone (a lost ssh).
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger(__name__)


def end_by_signals() -> None:
    """From now on one of these signals ends the process, with a line and an exit code.

    The process ends where it is, as by `kill -9`: what is saved is whole at every moment, and what
    is half-written is removed by the next command. To raise an exception instead is not sound:
    where the signal meets a callback (of Python's garbage collector, into JAX, above all) the
    exception is lost, and the program goes on; or it goes through C++ that knows of none, and the
    process crashes.

    Python calls handlers on the main thread only, and not while that is at work in C++, be it a
    compile of many minutes. So the signal also wakes a thread, and the first of the two ends the
    process. A signal that is ignored (as SIGHUP by `nohup`) stays so.
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
        if signal.getsignal(number) is end:  # nobody has taken it
            end(number)


_ending = threading.RLock()  # for whichever thread is first; the other one waits for its end


def end(number: int, frame: object = None) -> NoReturn:
    """Ends the process because of a signal; as a handler, or called by any thread."""
    with _ending:
        interrupted = number == signal.SIGINT
        what = "interrupted" if interrupted else f"stopped by {signal.Signals(number).name}"
        with contextlib.suppress(OSError):  # a terminal that is gone
            os.write(2, f"{what}: the same command goes on from what is saved\n".encode())
        os._exit(EXIT_INTERRUPTED if interrupted else EXIT_STOPPED)


@contextlib.contextmanager
def taken(numbers: Sequence[signal.Signals] = STOPPING) -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether a signal has come; inside, it ends nothing.

    A second one of the same kind does what it would have done outside; but not SIGHUP, which both
    the system and the shell send where a terminal is gone. On another thread than the main one,
    where no handler can be set, nothing is taken and nothing told.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: set[int] = set()
    before = {}

    def handle(number, frame):
        if number == signal.SIGHUP:
            _leave_the_terminal()
        elif number in came:
            signal.signal(number, before[number])
            signal.raise_signal(number)
            return
        came.add(number)
        _log.warning("stopping after this step (%s)", signal.Signals(number).name)

    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_the_terminal() -> None:
    """To write to a terminal that is gone is an error, which would end what is to be saved."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # a closed one
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                os.dup2(nowhere, stream)
