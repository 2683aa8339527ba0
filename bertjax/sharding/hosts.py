"""The processes of a job, one on each host: how they find, tell and leave each other."""

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
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

import jax

# The state behind `jax.distributed`. Only there are the number of hosts before a device is
# touched, and messages between hosts that need no devices.
from jax._src import distributed

from bertjax.errors import InputError, NonFiniteLoss

_JOIN_SECONDS = 50  # for the other hosts to be started
_AGREE_SECONDS = 1800  # for the slowest host to read its corpus
_BEAT_SECONDS, _SILENT_SECONDS = 5, 45  # each host gives a sign; a silent one counts as lost
_HEARTBEAT_SECONDS = 100  # JAX's own, which ends a process without a word for the user

# How the loss of another host shows: in a collective, in the service that connects the hosts.
_LOST = re.compile("Gloo|UNAVAILABLE|heartbeat|[Bb]arrier|coordination service")


def join_processes() -> None:
    """Connects the processes of a multi-host job; does nothing in a job of one process.

    To be called before anything else of JAX. JAX finds Cloud TPU slices and Slurm jobs by itself.
    Elsewhere the environment names the job:
    JAX_COORDINATOR_ADDRESS=host:port, BERTJAX_PROCESSES=n, BERTJAX_PROCESS=i.

    Raises:
      InputError: a coordinator without the two numbers; hosts that do not come within a minute.
    """
    job = {}
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        try:
            values = [int(os.environ[f"BERTJAX_{name}"]) for name in ("PROCESSES", "PROCESS")]
        except (KeyError, ValueError) as error:
            raise InputError(
                "JAX_COORDINATOR_ADDRESS is set: set BERTJAX_PROCESSES to the number of "
                "processes and BERTJAX_PROCESS to this one's number, from 0"
            ) from error
        job = dict(zip(("num_processes", "process_id"), values, strict=True))
    try:
        _initialize(**job)
    except ValueError as error:
        if "coordinator_address" not in str(error):  # no cluster: a job of one process
            raise
    if count() == 1:
        # JAX has put its handler in the place of ours: hosts agree by it on a step to stop at.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _initialize(**job: int) -> None:
    """`jax.distributed.initialize`, on a thread: alone it blocks, then aborts the process."""
    joined = Future()

    def initialize() -> None:
        try:
            jax.distributed.initialize(**job, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS)
        except Exception as error:
            joined.set_exception(error)
        else:
            joined.set_result(None)

    threading.Thread(target=initialize, name="join", daemon=True).start()
    try:
        joined.result(_JOIN_SECONDS)
    except TimeoutError as error:
        raise InputError(
            f"host {index()} of a job of {count()} hosts has waited {_JOIN_SECONDS} seconds for "
            "the others: start the same command on every host at the same time; where that was "
            f"done, {distributed.global_state.coordinator_address} must be open to them, which is "
            "host 0"
        ) from error


def count() -> int:
    """How many hosts the job has; touches no device."""
    return distributed.global_state.num_processes


def index() -> int:
    """Which of them this is, from 0; touches no device."""
    return distributed.global_state.process_id


_exchanges = itertools.count()


def exchange(value: Any) -> list[Any]:
    """What every host gave, by host; JSON. All must call it equally often; touches no device.

    Raises:
      InputError: a host that has not called it for half an hour.
    """
    if count() == 1:
        return [value]
    client = distributed.global_state.client
    folder = f"bertjax/exchange/{next(_exchanges)}"
    client.key_value_set(f"{folder}/{index()}", json.dumps(value))
    end = time.monotonic() + _AGREE_SECONDS
    while True:
        told = dict(client.key_value_dir_get(folder))
        by_host = {int(key.rpartition("/")[2]): text for key, text in told.items()}
        if len(by_host) == count():
            return [json.loads(by_host[host]) for host in range(count())]
        if time.monotonic() > end:
            missing = named([host for host in range(count()) if host not in by_host])
            raise InputError(f"no word of {missing} for {_AGREE_SECONDS} seconds: look there")
        time.sleep(0.05)


@contextlib.contextmanager
def agreed() -> Iterator[None]:
    """What one host raises inside, all raise where the block ends; all must come there.

    So a fault of one host ends the job on all, and none waits for a host that is gone.

    Raises:
      InputError: the faults of all hosts, by host; of a job of one host just what it raised.
    """
    fault = None
    try:
        yield
    except BaseException as error:
        if count() == 1:
            raise
        fault = error
    told = exchange(fault and _told(fault))
    if fault and not isinstance(fault, InputError):
        raise fault  # with its traceback
    if any(told):
        raise InputError("; ".join(_by_host(told))) from fault


def _told(fault: BaseException) -> str:
    return str(fault) if isinstance(fault, InputError) else repr(fault)


def _by_host(told: Sequence[str | None]) -> list[str]:
    """Equal words of several hosts once."""
    if len(set(told)) == 1:
        return [told[0]]
    hosts = {text: [i for i, other in enumerate(told) if other == text] for text in told if text}
    return [f"{named(who)}: {text}" for text, who in hosts.items()]


def named(hosts: Sequence[int]) -> str:
    """ "host 3", or "hosts 1, 3"."""
    return f"host{'s' if len(hosts) > 1 else ''} {', '.join(map(str, hosts))}"


@contextlib.contextmanager
def in_step(exit_code_when_lost: int) -> Iterator[None]:
    """Work that all hosts do in step. What ends it on one host ends the process there at once.

    Python would first wait for the other hosts, which wait for this one. A host that is gone
    without a word (kill -9, a machine taken away) is missed by the others within a minute, also
    while they wait for it in a computation.

    Of what all hosts raise alike (`InputError`, `NonFiniteLoss`), and in a job of one process, of
    everything, nothing changes.

    Args:
      exit_code_when_lost: where another host is what was lost.
    """
    if count() == 1:
        yield
        return
    signs = _Signs()
    try:
        with _watched(signs, exit_code_when_lost):
            yield
    except (InputError, NonFiniteLoss):
        raise
    except BaseException as error:
        if _LOST.search(str(error)):
            _give_up(signs, "another host", error, exit_code_when_lost)
        traceback.print_exc()
        _leave(signs, 1)


_DONE, _LEFT = "done", "left"  # the last sign of a host; before, the number of its beat
_blocks = itertools.count()


class _Signs:
    """What the hosts tell each other in a block of work; host 0 keeps it."""

    def __init__(self):
        self._client = distributed.global_state.client
        self._folder = f"bertjax/signs/{next(_blocks)}"
        self._last: dict[int, tuple[str, float]] = {}  # host -> its sign, and since when it is that

    def tell(self, sign: str) -> None:
        self._client.key_value_set(f"{self._folder}/{index()}", sign, allow_overwrite=True)

    def look(self) -> dict[int, tuple[str, float]]:
        """Host -> its last sign, and the seconds that it has been that, for all that gave one."""
        now = time.monotonic()
        for key, sign in self._client.key_value_dir_get(self._folder):
            host = int(key.rpartition("/")[2])
            if host not in self._last or self._last[host][0] != sign:
                self._last[host] = sign, now
        return {host: (sign, now - since) for host, (sign, since) in self._last.items()}


@contextlib.contextmanager
def _watched(signs: _Signs, exit_code: int) -> Iterator[None]:
    """While the block runs, this host gives signs, and ends when another one gives none."""
    stop = threading.Event()

    def watch() -> None:
        for beat in itertools.count():
            try:
                signs.tell(str(beat))
                told = signs.look()
            except jax.errors.JaxRuntimeError as error:
                _give_up(signs, "host 0", error, exit_code)  # it keeps the signs
            for host, (sign, seconds) in told.items():
                if sign == _LEFT:
                    _give_up(signs, named([host]), "it has left", exit_code)
                if sign != _DONE and seconds > _SILENT_SECONDS:
                    reason = f"no sign of it for {_SILENT_SECONDS} seconds"
                    _give_up(signs, named([host]), reason, exit_code)
            if stop.wait(_BEAT_SECONDS):
                return

    thread = threading.Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    signs.tell(_DONE)


def _give_up(signs: _Signs, what: str, reason: object, code: int) -> NoReturn:
    """Ends this process because another host is lost."""
    print(
        f"error: host {index()} has lost {what} ({' '.join(str(reason).split())[:200]}): start the "
        "same command again on every host, it goes on from the last whole checkpoint",
        file=sys.stderr,
    )
    _leave(signs, code)


def _leave(signs: _Signs, code: int) -> NoReturn:
    """Ends this process; host 0 as the last, because JAX aborts the others where it is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # host 0 is gone: none is left to tell
        signs.tell(_LEFT)
        if index() == 0:
            _outstay(signs)
    os._exit(code)


def _outstay(signs: _Signs) -> None:
    """Returns when every other host has left, is done, or has been silent for too long."""
    since = time.monotonic()
    while True:
        told, waited = signs.look(), time.monotonic() - since
        others = [told.get(host, ("", waited)) for host in range(1, count())]
        if all(sign in (_LEFT, _DONE) or age > _SILENT_SECONDS for sign, age in others):
            break
        time.sleep(0.2)
    time.sleep(_BEAT_SECONDS)  # between a host's last sign and its end
