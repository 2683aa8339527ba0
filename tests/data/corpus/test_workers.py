"""Worker processes: they end with their parent, without a message."""

import os
import signal
import subprocess
import sys

import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.workers import worker_pool
from tests.helpers.patience import PATIENCE

PARENT = """
import time

from bertjax.data.corpus.workers import worker_pool
from bertjax.base.signals import end_by_signals

if __name__ == "__main__":
    end_by_signals()
    with worker_pool(1) as pool:
        print(pool.submit(str, "ready").result(), flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    "number, words",
    [
        (signal.SIGINT, "interrupted: the same command goes on from what is saved\n"),
        (signal.SIGKILL, ""),
    ],
)
def test_workers_that_wait_end_with_their_parent(tmp_path, number, words):
    """Ctrl-C reaches all processes, kill -9 only the parent."""
    (tmp_path / "parent.py").write_text(PARENT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "ready\n"
    (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
    _, errors = process.communicate(timeout=PATIENCE)  # returns when no process has the pipe open
    assert errors == words
    assert process.returncode == (130 if words else -signal.SIGKILL)


def test_a_killed_worker_is_told():
    """The system kills one when there is no memory left."""
    wanted = "one of 2 worker processes was killed, .* memory: give fewer --workers; .* goes on"
    with pytest.raises(InputError, match=wanted), worker_pool(2) as pool:
        pool.submit(signal.raise_signal, signal.SIGKILL).result()
