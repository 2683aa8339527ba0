"""Leftovers of killed processes, damaged JSON, untrusted names, locks, and formatted sizes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertjax.base import files
from bertjax.base.errors import InputError
from bertjax.base.files import (
    atomic_write,
    exclusive,
    inside,
    new_folder,
    no_file,
    read_json,
    replaced_folder,
    size_in_words,
    write_json,
)
from bertjax.base.validation import record

HOLDER = """
import sys, time
from pathlib import Path
from bertjax.base.files import atomic_write, exclusive, new_folder

folder = Path(sys.argv[1])
with exclusive(folder), atomic_write(folder / "file"), new_folder(folder / "model") as model:
    (model / "weights").write_text("half of them")
    print("held", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def as_a_new_command(monkeypatch) -> None:
    """Makes this process look for leftovers again, which it does once in each folder."""
    monkeypatch.setattr(files, "_looked_through", set())


def test_one_process_at_a_time_and_none_once_it_is_killed(tmp_path, monkeypatch):
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
        held = names(folder)
        assert len(held) == 3
        # Another process that makes the same folder gets an error at once; nothing is removed.
        with (
            pytest.raises(InputError, match="model: another process is making it: wait until"),
            new_folder(folder / "model"),
        ):
            raise AssertionError
        assert names(folder) == held
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with exclusive(folder):
        pass
    assert names(folder) == held
    as_a_new_command(monkeypatch)
    with atomic_write(folder / "another", "w") as file:
        file.write("whole")
    assert names(folder) == [".lock", "another"]
    (tmp_path / "file").touch()
    for name in ("file", "file/folder", "x" * 256):
        with (
            pytest.raises(InputError, match=f"{name}: cannot be written .*: choose another folder"),
            exclusive(tmp_path / name),
        ):
            pass
    with pytest.raises(KeyError), exclusive(folder):  # an error in the block also releases the lock
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


def test_what_another_host_works_on_is_left_alone(tmp_path, monkeypatch):
    """Hosts of a pod share folders, and their process numbers mean nothing on this host."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(files.os, "getpid", lambda: gone.pid)
        here = files.temporary_name(tmp_path / "model")
        elsewhere.setattr(files.socket, "gethostname", lambda: "host-7.example.org")
        there = files.temporary_name(tmp_path / "model")
    for path in (here, there, tmp_path / f".model.v2.host-7.{gone.pid}.tmp"):
        path.mkdir()
        (path / "weights").touch()
    as_a_new_command(monkeypatch)
    with (
        pytest.raises(InputError, match=f"on no host, remove {there}\\)$"),
        new_folder(tmp_path / "model"),
    ):
        raise AssertionError
    assert not here.exists() and (there / "weights").exists()
    with new_folder(tmp_path / "other") as folder:  # a target with another name
        (folder / "weights").touch()
    assert names(tmp_path / "other") == ["weights"]


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path):
    with (
        pytest.raises(InputError, match="model: cannot be written .Directory not empty"),
        new_folder(tmp_path / "model"),
    ):
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "theirs").touch()
    assert names(tmp_path) == ["model"] and names(tmp_path / "model") == ["theirs"]


def test_what_appears_is_on_the_disk(tmp_path, monkeypatch):
    """The content is flushed before the name, so a power cut leaves the old or the new file."""
    order = []

    def noting(name):
        real = getattr(os, name)

        def noted(*arguments):
            if name == "fsync":
                order.append(Path(os.readlink(f"/proc/self/fd/{arguments[0]}")).name)
            else:
                order.append(f"{name} {Path(arguments[1]).name}")
            return real(*arguments)

        monkeypatch.setattr(os, name, noted)

    for name in ("fsync", "replace", "rename"):
        noting(name)
    write_json(tmp_path / "a.json", {})
    mine = files.temporary_name(tmp_path / "a.json").name
    assert order == [mine, "replace a.json", tmp_path.name]
    order.clear()
    with new_folder(tmp_path / "b") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "c").touch()
    assert sorted(order[:-2]) == sorted(["c", "inner", folder.name])
    assert order[-2:] == ["rename b", tmp_path.name]


FIELDS = record(step=int, value=float | None, splits=record(train=record(files=dict)))
WHOLE = b'{"step": 3, "value": null, "splits": {"train": {"files": {}, "more": 1}}}'


@pytest.mark.parametrize(
    "content, wrong",
    [
        (b"", "Expecting value: line 1"),
        (WHOLE[:-9], "Unterminated string"),
        (b"\0" * 40, "Expecting value"),
        (b'{"step": "\xff"}', "'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"9" * 5000, "Exceeds the limit"),
        (b"null", "None: expected `object`, got `null`"),
        (b"[1, 2]", r"\[1, 2\]: expected `object`, got `array`"),
        (b"{}", "{}: object missing required field `step`"),
        (WHOLE.replace(b"3", b'"3"'), "step='3': expected `int`, got `str`"),
        (WHOLE.replace(b"null", b"true"), r"value=True: expected `float \| null`, got `bool`"),
        (WHOLE.replace(b"{}", b"[]"), r"splits.train.files=\[\]: expected `object`, got `array`"),
        (
            WHOLE.replace(b'{"files": {}, "more": 1}', b"null"),
            "splits.train=None: expected `object`, got `null`",
        ),
    ],
)
def test_damaged_json_is_refused_with_its_cure(tmp_path, content, wrong):
    path = tmp_path / "a.json"
    path.write_bytes(WHOLE)
    assert read_json(path, FIELDS, hint="") == {
        **{"step": 3, "value": None, "splits": {"train": {"files": {}, "more": 1}}}
    }
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{path}: damaged \({wrong}.*\): mend it$"):
        read_json(path, FIELDS, hint="mend it")


def test_counts_of_our_own_have_no_limit(tmp_path):
    write_json(tmp_path / "a.json", {"bytes": 2**40})
    assert read_json(tmp_path / "a.json", record(bytes=int), hint="") == {"bytes": 2**40}


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "..", ".", "", "a\\b", "a\0", "gs://b/c", None, 7]
)
def test_a_name_from_outside_stays_in_its_folder(tmp_path, name):
    with pytest.raises(InputError, match="^list.json: names the file .*files directly in"):
        inside(tmp_path, name, "list.json")


def test_plain_names(tmp_path):
    for name in ("model-00001-of-00002.safetensors", ".hidden", "a..b", "~", "naïve"):
        assert inside(tmp_path, name, "list.json") == tmp_path / name


@pytest.mark.parametrize(
    "size, words",
    [
        *[(0, "0 bytes"), (1023.4, "1023 bytes"), (1024, "1.00 KiB"), (700_000, "683.59 KiB")],
        *[(2**20, "1.00 MiB"), (3 * 2**29, "1.50 GiB"), (5e15, "4,656,612.87 GiB")],
    ],
)
def test_sizes_are_never_nothing_of_a_unit(size, words):
    assert size_in_words(size) == words


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "nothing", tmp_path / "link")
    assert no_file(tmp_path) == "a folder, where a file is needed: name a file in it"
    assert no_file(tmp_path / "pipe").startswith("a pipe or a device, which cannot be read twice")
    for name in ("nothing", "link"):
        assert no_file(str(tmp_path / name)) == "no such file: check the path"


def test_a_file_in_a_folder_that_does_not_exist(tmp_path):
    path = tmp_path / "nowhere" / "a.json"
    with pytest.raises(InputError, match=f"{path}: cannot be written .*: choose another folder"):
        write_json(path, {})


@pytest.mark.parametrize("write", [atomic_write, new_folder, replaced_folder])
def test_an_error_of_the_system_has_the_path(tmp_path, write):
    """A write on a full disk names no file, and the user needs one; other errors stay."""
    path = tmp_path / "a"
    for raised, name in (
        (OSError(errno.ENOSPC, "No space left on device"), str(path)),
        (OSError(errno.EIO, "Input/output error", "input.txt"), "input.txt"),
        (OSError("of a library, without a number"), None),
    ):
        said = str(raised)
        with pytest.raises(OSError) as caught, write(path):
            raise raised
        assert caught.value is raised and raised.filename == name
        assert str(raised) == (f"{said}: {name!r}" if name == str(path) else said)
    assert names(tmp_path) == []
