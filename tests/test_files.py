"""Folders that are whole or absent, and with one process at work in them."""

import signal
import subprocess
import sys

import pytest

from bertjax.errors import InputError
from bertjax.files import exclusive, new_folder

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
    for name in ("file", "file/folder", "x" * 256):
        with (
            pytest.raises(InputError, match=f"{name}: cannot be written .*: choose another folder"),
            exclusive(tmp_path / name),
        ):
            pass
    with pytest.raises(KeyError), exclusive(folder):  # an error in the block lifts it, too
        raise KeyError
    with exclusive(folder):
        pass


def test_a_new_folder_is_put_where_nothing_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in (".", "..", "file", "link"):
        with pytest.raises(InputError, match="is there already: choose"), new_folder(name):
            pass
    for name in ("file/x", "x" * 256):
        with pytest.raises(InputError, match=f"{name}: cannot be written"), new_folder(name):
            pass
    with new_folder("new/folder") as folder:
        (folder / "a").touch()
        assert not (tmp_path / "new" / "folder").exists()
    assert [path.name for path in (tmp_path / "new").rglob("*")] == ["folder", "a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "new"]
