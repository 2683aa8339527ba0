"""Folders with one process at work in them, and sizes in words."""

import signal
import subprocess
import sys

import pytest

from bertjax.errors import InputError
from bertjax.files import exclusive, size_in_words

HOLDER = """
import sys, time
from bertjax.files import exclusive

with exclusive(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_and_none_once_it_is_killed(tmp_path):
    folder = tmp_path / "new" / "folder"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match="folder: in use by another process"),
            exclusive(folder),
        ):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with exclusive(folder):
        pass
    (tmp_path / "file").touch()
    for name in ("file", "file/folder"):
        with (
            pytest.raises(InputError, match=f"{name}: cannot be written .*: choose another folder"),
            exclusive(tmp_path / name),
        ):
            pass
    with pytest.raises(KeyError), exclusive(folder):  # an error in the block lifts it, too
        raise KeyError
    with exclusive(folder):
        pass


@pytest.mark.parametrize(
    "size, words",
    [
        *[(0, "0 bytes"), (1023.4, "1023 bytes"), (1024, "1.00 KiB"), (700_000, "683.59 KiB")],
        *[(2**20, "1.00 MiB"), (3 * 2**29, "1.50 GiB"), (5e15, "4,656,612.87 GiB")],
    ],
)
def test_sizes_are_never_nothing_of_a_unit(size, words):
    assert size_in_words(size) == words
