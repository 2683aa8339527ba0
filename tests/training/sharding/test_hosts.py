"""The processes of a job: they join, exchange values and agree."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from bertjax.base.cache_folder import compiled_folder
from bertjax.base.errors import InputError
from bertjax.training.sharding.hosts import host_count, join_processes
from tests.helpers.patience import PATIENCE
from tests.helpers.reserved_port import reserved_port
from tests.training.sharding import host_job


def test_one_process_joins_nothing():
    """It runs in a separate process, because JAX must not have been used before."""
    program = (
        "import jax; from bertjax.training.sharding.hosts import join_processes; join_processes();"
        "print(jax.process_count(), jax.distributed.is_initialized())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COORDINATOR_ADDRESS"}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (result.stdout, result.returncode) == ("1 False\n", 0), result.stderr


@pytest.mark.parametrize("moved", ["global_state", "State.client"])
def test_a_jax_that_keeps_its_state_elsewhere_is_named(monkeypatch, moved):
    monkeypatch.delattr(f"jax._src.distributed.{moved}")
    message = rf"jax {re.escape(jax.__version__)} has no .*global_state with client.*: install a"
    with pytest.raises(InputError, match=message):
        host_count()


@pytest.mark.parametrize("numbers", [{}, {"PROCESSES": "2"}, {"PROCESSES": "2", "PROCESS": "one"}])
def test_a_coordinator_without_the_numbers(monkeypatch, numbers):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    for name in ("PROCESSES", "PROCESS"):
        monkeypatch.delenv(f"BERTJAX_{name}", raising=False)
    for name, value in numbers.items():
        monkeypatch.setenv(f"BERTJAX_{name}", value)
    with pytest.raises(InputError, match="set BERTJAX_PROCESSES to the number of processes"):
        join_processes()


def _start(program, index: int, count: int, port: int) -> subprocess.Popen:
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(compiled_folder()),
        "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
        "BERTJAX_PROCESSES": str(count),
        "BERTJAX_PROCESS": str(index),
    }
    return subprocess.Popen(
        [sys.executable, *map(str, program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_job_of_one_process_ends_by_sigterm():
    """JAX's own handler only records the signal, which nothing would check before training."""
    program = (
        "import os; from bertjax.programs import commandline;"
        "from bertjax.training.sharding import hosts;"
        "commandline.run(lambda _: (hosts.join_processes(), os.kill(os.getpid(), 15)))"
    )
    with reserved_port() as port:
        process = _start(["-c", program], 0, 1, port)
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, errors
    assert errors.splitlines()[-1].startswith("stopped by SIGTERM: ") and output == ""


@pytest.mark.slow
def test_a_host_that_is_alone_says_so(tmp_path):
    """Tests host 0, to which the others connect, and another host, each alone in its job."""
    program = (
        "from bertjax.programs import commandline; from bertjax.training.sharding import hosts;"
        "hosts._JOIN_SECONDS = 2;"
        "commandline.run(lambda _: hosts.join_processes())"
    )
    with reserved_port() as one, reserved_port() as other:
        processes = {
            index: _start(["-c", program], index, 4, port) for index, port in ((0, one), (2, other))
        }
        outputs = {index: each.communicate(timeout=PATIENCE) for index, each in processes.items()}
    for index, process in processes.items():
        output, errors = outputs[index]
        assert process.returncode == 2, errors
        (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
        assert f"host {index} of a job of 4 hosts has waited 2 seconds for the others" in line
        assert "start the same command on every host at the same time" in line
        assert "Traceback" not in errors and output == ""


@pytest.mark.slow
def test_a_slow_host_is_not_aborted_when_another_is_lost(tmp_path):
    """Host 2 is killed when all have seen its sign; host 1 prints its message and ends late.

    Host 0 cannot read the signs of the others when it begins to leave; it waits for host 1.
    """
    program = """
import sys, threading, time
from pathlib import Path
import jax
from bertjax.training.sharding import hosts
hosts._BEAT_SECONDS, hosts._SILENT_SECONDS = 1, 20
hosts.join_processes()
folder, give_up = Path(sys.argv[1]), hosts._give_up
def stand_still(*reason):
    while not (folder / "go").exists():
        time.sleep(0.05)
    give_up(*reason)
def hear_nothing_at_first(*reason):
    look = hosts._Heartbeats.read
    def fail_once(self):
        hosts._Heartbeats.read = look
        raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED")
    hosts._Heartbeats.read = fail_once
    give_up(*reason)
all_seen, look = threading.Event(), hosts._Heartbeats.read
def note(self):
    signs = look(self)
    if len(signs) == 3:
        all_seen.set()
    return signs
hosts._Heartbeats.read = note
if hosts.host_index() < 2:
    hosts._give_up = (hear_nothing_at_first, stand_still)[hosts.host_index()]
with hosts.heartbeat(75):
    all_seen.wait()
    (folder / str(hosts.host_index())).touch()
    time.sleep(6000)
"""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(reserved_port())
        jobs = [_start(["-c", program, tmp_path], index, 3, port) for index in range(3)]
        for job in jobs:
            stack.callback(job.kill)
        _wait_for(lambda: len(list(tmp_path.iterdir())) == 3)
        jobs[2].kill()
        missed = jobs[0].stderr.readline()
        assert jobs[0].poll() is None
        (tmp_path / "go").touch()
        errors = [job.communicate(timeout=PATIENCE)[1] for job in jobs]
    assert "error: host 0 has lost host 2 (no heartbeat for 20 seconds)" in missed
    assert "error: host 1 has lost host " in errors[1]
    assert [job.returncode for job in jobs] == [75, 75, -signal.SIGKILL], errors


def _wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> list[dict[str, str]]:
    """The results of all cases of host_job.py, on three hosts."""
    folder = tmp_path_factory.mktemp("hosts")
    program = [Path(host_job.__file__), folder]
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(reserved_port())
        processes = [_start(program, index, 3, port) for index in range(3)]
        for process in processes:
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    assert list((folder / "one").iterdir()) == []  # nothing is left After
    return [json.loads(output) for output, _ in outputs]


def _all_raise(reports, case: str, message: str) -> None:
    assert [host[case] for host in reports] == [f"InputError: {message}"] * 3


@pytest.mark.slow
def test_hosts_exchange_values(reports):
    assert [host["hosts"] for host in reports] == ["(0, 3)", "(1, 3)", "(2, 3)"]
    expected = repr([{"of": 2 - n % 2, "n": n} for n in range(12)])
    assert [host["exchanges"] for host in reports] == [expected] * 3
    assert [host["all well"] for host in reports] == ["None"] * 3


@pytest.mark.slow
def test_a_job_of_several_hosts_keeps_no_programs_on_each(reports):
    """JAX would write those of the first host only."""
    assert [host["compiled"] for host in reports] == ["None"] * 3


@pytest.mark.slow
def test_a_fault_of_one_host_is_raised_on_all(reports):
    _all_raise(reports, "one fault", "host 1: no corpus")
    _all_raise(reports, "two faults", "hosts 0, 2: no corpus")
    _all_raise(reports, "the same everywhere", "no corpus")
    messages = [host["a bug"] for host in reports]
    assert messages == ["InputError: host 2: KeyError('x')"] * 2 + ["KeyError: 'x'"]
    stopped = "InputError: host 1: KeyboardInterrupt()"
    assert [host["Ctrl-C"] for host in reports] == [stopped, "KeyboardInterrupt: ", stopped]


@pytest.mark.slow
def test_preflight_of_three_hosts(reports):
    remedy = "give every host the same installation, config and corpus, and the same command"
    differs = "the hosts of this job differ: seed is 7 on host 2, 1 on the others"
    _all_raise(reports, "facts", f"{differs}: {remedy}")
    assert [host["one folder"] for host in reports] == ["None"] * 3
    for host in reports:
        assert "is not the folder that host 0 has under this name" in host["a folder each"]
        assert host["a folder each"].startswith("InputError: host 1: ")
        assert "host 0: " in host["no room"] and "free some space" in host["no room"]
