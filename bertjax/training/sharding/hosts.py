"""The processes of a job, one on each host: how they connect, agree, and notice a lost host."""

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import jax

from bertjax.base.cache_folder import compiled_folder
from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.files import exclusive

_JOIN_SECONDS = 50  # until the other hosts must have started
_AGREE_SECONDS = 1800  # the slowest host may take this long to read its corpus
_BEAT_SECONDS, _SILENT_SECONDS = 5, 45  # between a host's beats; without any it is lost
_HEARTBEAT_SECONDS = 100  # of JAX, which ends a process without a message for the user

# Words in the error messages after another host is lost: of collectives, and of the service that
# connects the hosts.
_LOST = re.compile("Gloo|UNAVAILABLE|heartbeat|[Bb]arrier|coordination service")

# The attributes of the state of `jax.distributed` that are used here.
_STATE = ("client", "coordinator_address", "num_processes", "process_id")

T = TypeVar("T")


def _state() -> Any:
    """The state of `jax.distributed`: nothing public counts hosts without initializing a device."""
    state: Any = None
    with contextlib.suppress(ImportError):
        from jax._src.distributed import global_state as state
    missing = [name for name in _STATE if not hasattr(state, name)]
    if missing:
        raise InputError(
            f"jax {jax.__version__} has no jax._src.distributed.global_state with "
            f"{', '.join(missing)}, by which hosts find each other: install a version of jax that "
            "constraints/ names"
        )
    return state


def join_processes() -> None:
    """Connects the processes of a multi-host job; does nothing in a job of one process.

    It must be called before any other use of JAX. JAX detects Cloud TPU slices and Slurm jobs by
    itself. Elsewhere the environment describes the job:
    JAX_COORDINATOR_ADDRESS=host:port, BERTJAX_PROCESSES=n, BERTJAX_PROCESS=i.
    """
    processes = process = None
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        try:
            processes = int(os.environ["BERTJAX_PROCESSES"])
            process = int(os.environ["BERTJAX_PROCESS"])
        except (KeyError, ValueError) as error:
            raise InputError(
                "JAX_COORDINATOR_ADDRESS is set: set BERTJAX_PROCESSES to the number of "
                "processes and BERTJAX_PROCESS to this one's number, from 0"
            ) from error
    try:
        _initialize(processes, process)
    except ValueError as error:
        if "coordinator_address" not in str(error):  # no cluster: a job of one process
            raise
    if host_count() > 1:
        # JAX writes what the first host compiles, so it helps only in a folder that all hosts read.
        if jax.config.jax_compilation_cache_dir == str(compiled_folder()):
            jax.config.update("jax_compilation_cache_dir", None)
    else:
        # JAX has replaced this program's handler with its own, by which the hosts agree on the step
        # at which they stop.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _initialize(processes: int | None, process: int | None) -> None:
    """Calls `jax.distributed.initialize` on a thread: it may block, and then abort the process."""
    joined: Future[None] = Future()

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                num_processes=processes,
                process_id=process,
                heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            )
        except Exception as error:
            joined.set_exception(error)
        else:
            joined.set_result(None)

    threading.Thread(target=initialize, name="join", daemon=True).start()
    try:
        joined.result(_JOIN_SECONDS)
    except TimeoutError as error:
        raise InputError(
            f"host {host_index()} of a job of {host_count()} hosts has waited {_JOIN_SECONDS} "
            "seconds for the others: start the same command on every host at the same time, and "
            f"make sure that every host can reach host 0 at {_state().coordinator_address}"
        ) from error


def host_count() -> int:
    """The number of hosts of the job; it initializes no device."""
    return _state().num_processes


def host_index() -> int:
    """The number of this host, from 0; it initializes no device."""
    return _state().process_id


_exchanges = itertools.count()


def all_gather(value: Any) -> list[Any]:
    """Exchanges a JSON value between all hosts, and returns the values in the order of the hosts.

    All hosts must call it equally often; InputError if one does not for half an hour. It
    initializes no device.
    """
    if host_count() == 1:
        return [value]
    client = _state().client
    folder = f"bertjax/all_gather/{next(_exchanges)}"
    client.key_value_set(f"{folder}/{host_index()}", json.dumps(value))
    end = time.monotonic() + _AGREE_SECONDS
    while True:
        received = dict(client.key_value_dir_get(folder))
        by_host = {int(key.rpartition("/")[2]): text for key, text in received.items()}
        if len(by_host) == host_count():
            return [json.loads(by_host[host]) for host in range(host_count())]
        if time.monotonic() > end:
            missing = host_names([host for host in range(host_count()) if host not in by_host])
            raise InputError(
                f"no answer from {missing} for {_AGREE_SECONDS} seconds: read the output there"
            )
        time.sleep(0.05)


@contextlib.contextmanager
def raise_together() -> Iterator[None]:
    """Makes all hosts raise at the end of the block, as InputError, what one of them raised inside.

    So none waits for a host that has ended. All hosts must execute the block. In a job of one host,
    its error is raised unchanged.
    """
    fault = None
    try:
        yield
    except BaseException as error:
        if host_count() == 1:
            raise
        fault = error
    faults = all_gather(fault and _message(fault))
    if fault and not isinstance(fault, InputError):
        raise fault  # with its traceback
    if any(faults):
        raise InputError("; ".join(_messages_by_host(faults))) from fault


def from_first(make: Callable[[], T]) -> T:
    """What `make` returns on the first host, a JSON value, on all hosts; so is its error.

    What one host decides, reads or writes for all goes through here. All hosts must call it; the
    others have done all their work before it when it returns on any host.
    """
    value: Any = None
    with raise_together():
        if host_index() == 0:
            value = make()
    return all_gather(value)[0]


@contextlib.contextmanager
def exclusive_on_first(folder: Path) -> Iterator[None]:
    """Locks a folder for this job while the block runs; if the first host cannot, all raise."""
    with contextlib.ExitStack() as stack:
        with raise_together():
            if host_index() == 0:
                stack.enter_context(exclusive(folder))
        yield


def say(text: str) -> None:
    """Prints a text on the first host."""
    if host_index() == 0:
        print(text, flush=True)


def _message(fault: BaseException) -> str:
    return str(fault) if isinstance(fault, InputError) else repr(fault)


def _messages_by_host(faults: Sequence[str | None]) -> list[str]:
    """The messages with the names of their hosts; equal messages become one."""
    hosts = {
        text: [i for i, other in enumerate(faults) if other == text] for text in faults if text
    }
    if len(set(faults)) == 1:
        return list(hosts)
    return [f"{host_names(who)}: {text}" for text, who in hosts.items()]


def host_names(hosts: Sequence[int]) -> str:
    """Names hosts in a message: "host 3", or "hosts 1, 3"."""
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts))}"


@contextlib.contextmanager
def heartbeat(exit_code_when_lost: int) -> Iterator[None]:
    """Runs work that all hosts do together; an error on one host ends its process at once.

    Otherwise Python would wait for the other hosts, which wait for this one. If a host disappears
    without a message (kill -9, a machine taken away), the others notice it within a minute, even
    while they wait for it in a computation, and exit with `exit_code_when_lost`.

    Errors that all hosts raise in the same way (`InputError`, `NonFiniteLoss`) are raised as usual,
    and so are all errors in a job of one process.
    """
    if host_count() == 1:
        yield
        return
    beats = _Heartbeats()
    try:
        with _beating(beats, exit_code_when_lost):
            yield
    except (InputError, NonFiniteLoss):
        raise
    except BaseException as error:
        if _LOST.search(str(error)):
            _give_up(beats, "another host", error, exit_code_when_lost)
        traceback.print_exc()
        _leave(beats, 1)


_DONE, _LEFT = "done", "left"  # the last beat of a host; earlier beats are numbers
_blocks = itertools.count()


class _Heartbeats:
    """The beats of all hosts in a block of work; host 0 stores them."""

    def __init__(self):
        self._client = _state().client
        self._folder = f"bertjax/beats/{next(_blocks)}"
        self._last: dict[int, tuple[str, float]] = {}  # host -> its last beat, and since when

    def send(self, beat: str) -> None:
        self._client.key_value_set(f"{self._folder}/{host_index()}", beat, allow_overwrite=True)

    def read(self) -> dict[int, tuple[str, float]]:
        """Maps each host that has sent a beat to its last beat and the seconds since then."""
        now = time.monotonic()
        for key, beat in self._client.key_value_dir_get(self._folder):
            host = int(key.rpartition("/")[2])
            if host not in self._last or self._last[host][0] != beat:
                self._last[host] = beat, now
        return {host: (beat, now - since) for host, (beat, since) in self._last.items()}


@contextlib.contextmanager
def _beating(beats: _Heartbeats, exit_code: int) -> Iterator[None]:
    """While the block runs, sends beats, and ends this process when another host sends none."""
    stop = threading.Event()

    def watch() -> None:
        for number in itertools.count():
            try:
                beats.send(str(number))
                last = beats.read()
            except jax.errors.JaxRuntimeError as error:
                _give_up(beats, "host 0", error, exit_code)  # it stores the beats
            for host, (beat, seconds) in last.items():
                if beat == _LEFT:
                    _give_up(beats, host_names([host]), "it has left", exit_code)
                if beat != _DONE and seconds > _SILENT_SECONDS:
                    reason = f"no heartbeat for {_SILENT_SECONDS} seconds"
                    _give_up(beats, host_names([host]), reason, exit_code)
            if stop.wait(_BEAT_SECONDS):
                return

    thread = threading.Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    beats.send(_DONE)


def _give_up(beats: _Heartbeats, what: str, reason: object, code: int) -> NoReturn:
    """Ends this process because another host is lost."""
    print(
        f"error: host {host_index()} has lost {what} ({' '.join(str(reason).split())[:200]}): "
        "start the same command again on every host; it continues from the last complete "
        "checkpoint",
        file=sys.stderr,
    )
    _leave(beats, code)


def _leave(beats: _Heartbeats, code: int) -> NoReturn:
    """Ends this process. Host 0 ends last, because JAX aborts the others when host 0 is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # host 0 is gone
        beats.send(_LEFT)
    if host_index() == 0:
        _end_last(beats)
    os._exit(code)


def _end_last(beats: _Heartbeats) -> None:
    """Returns when every other host has left, is done, or has been silent for too long."""
    since = time.monotonic()
    while True:
        waited = time.monotonic() - since
        try:
            last = beats.read()
        except jax.errors.JaxRuntimeError:
            last = {}  # all others count as silent since this host began to leave
        beats_of_others = [last.get(host, ("", waited)) for host in range(1, host_count())]
        if all(beat in (_LEFT, _DONE) or age > _SILENT_SECONDS for beat, age in beats_of_others):
            break
        time.sleep(0.2)
    time.sleep(_BEAT_SECONDS)  # the time that a host may need to end after its last beat
