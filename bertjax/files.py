"""Files that are whole or absent, folders with one process at work in them, and JSON of our own."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bertjax.buckets import in_bucket, leased, path_of, telling
from bertjax.errors import InputError
from bertjax.json_kinds import parse, problem_in

# ------------------------------------------------------------------------------- writing


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Opens `path` for writing such that it appears only when the block succeeds.

    The bytes go to a temporary name in the same folder; leaving the block brings them and the
    folder's entry to the disk, so that a power cut leaves the old file or the new one. If the
    block raises (a full disk included), the temporary file is removed and an earlier `path` stays
    as it was. In a bucket the bytes are collected in memory, and written as one object.

    Raises:
      InputError: a bucket that does not take it.
    """
    path = path_of(path)
    if in_bucket(path):
        collected = io.BytesIO() if "b" in mode else io.StringIO()
        yield collected
        value = collected.getvalue()
        with telling(path):
            path.write_bytes(value if "b" in mode else value.encode())
        return
    temporary = temporary_name(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode, encoding=encoding) as file:
            yield file
            to_disk(file)
        os.replace(temporary, path)
        names_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def to_disk(file: IO) -> None:
    """Returns when what was written to a file would outlive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def names_to_disk(folder: Path) -> None:
    """The same for what lies in a folder: that it is there, and under which name."""
    with contextlib.suppress(OSError):  # file systems of networks may not know how
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def tree_to_disk(folder: Path) -> None:
    """The same for a folder with all that it holds."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            names_to_disk(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """A name beside `path` for what is to become it, which tells the process that works on it.

    What processes that are gone have left in the folder is removed first.
    """
    _remove_leftovers(path.parent.absolute())
    return path.with_name(f".{path.name}.{_home()}.{os.getpid()}.tmp")


def _home() -> str:
    """Where numbers of processes mean the same: this host, and on it this container."""
    host = re.sub(r"[^\w-]", "-", socket.gethostname())
    container = Path("/proc/self/ns/pid")  # Linux has it
    return f"{host}-{container.stat().st_ino}" if container.exists() else host


_looked_through: set[Path] = set()
_looking = threading.Lock()


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files and folders whose process is gone; once for each folder.

    Those of other hosts stay: whether their processes live cannot be seen from here.
    """
    with _looking:
        if folder in _looked_through:
            return
        _looked_through.add(folder)
        for path in folder.glob(f".*.{_home()}.*.tmp"):
            process = path.suffixes[-2][1:]
            # What has this process's number is of an earlier one: this one has just begun here.
            if process.isdecimal() and (int(process) == os.getpid() or not _lives(int(process))):
                with contextlib.suppress(OSError):  # another user's
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's; no number of a process
        return True
    return True


# ---------------------------------------------------------------------------------- JSON


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path, "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path, kind: Any = None, *, cure: str) -> dict[str, Any]:
    """Reads an object that `write_json` wrote.

    Args:
      kind: what it must be (see `bertjax.json_kinds`); None: any object.
      cure: what to do about a damaged one.

    Raises:
      FileNotFoundError: there is none.
      InputError: it is not UTF-8, no JSON, or not of this kind: the file and the cure.
    """
    data = path.read_bytes()
    try:
        value = parse(data)
        wrong = problem_in(value, kind or {})
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise InputError(f"{path}: damaged, or not ours ({wrong}): {cure}")
    return value


# ------------------------------------------------------------------------- names, folders


def inside(folder: Path, name: Any, origin: str | os.PathLike) -> Path:
    """The path of a file in a folder, by a name that comes from outside.

    Args:
      origin: the file that gives the name, for the message.

    Raises:
      InputError: it is not the plain name of a file, and might lie outside of the folder.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise InputError(
            f"{origin}: names the file {name!r:.200}, and may name only files that lie directly in "
            f"{folder}: it is damaged or not to be trusted: take another copy"
        )
    return folder / name


def sha256_of_file(path: str | os.PathLike) -> str:
    """Hex SHA-256 of a file's bytes, read in bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_by_content(path: Path, final: Path) -> Path:
    """Renames a finished file to STEM-DIGEST.SUFFIX of `final`, so that damage can be seen.

    Returns:
      The new path; `content_named` finds it, and `check_content` checks it.
    """
    named = final.with_name(f"{final.stem}-{_short_digest(path)}{final.suffix}")
    os.replace(path, named)
    names_to_disk(named.parent)
    return named


def content_named(final: Path) -> Path | None:
    """The file that `name_by_content` made for `final`; None if there is none."""
    return next(final.parent.glob(f"{final.stem}-{'[0-9a-f]' * _DIGITS}{final.suffix}"), None)


def check_content(path: Path) -> None:
    """Compares a file of `name_by_content` with the digest in its name.

    Raises:
      InputError: they differ.
    """
    if not path.is_file() or not path.stem.endswith(f"-{_short_digest(path)}"):
        raise InputError(
            f"{path}: damaged (its content is not what its name says): remove it and give the "
            "command again, which makes it anew"
        )


_DIGITS = 16


def _short_digest(path: Path) -> str:
    return sha256_of_file(path)[:_DIGITS]


@contextlib.contextmanager
def exclusive(folder: str | os.PathLike, *, wait: bool = False) -> Iterator[None]:
    """Keeps `folder`, made if need be, to this process while the block runs.

    The lock is on the file `.lock` inside it, which stays; the system lifts it when the process
    ends, however that may be. For one in a bucket see `bertjax.buckets.leased`.

    Args:
      wait: until another process gives it back.

    Raises:
      InputError: another process has it, and `wait` is False; it cannot be written.
    """
    folder = path_of(folder)
    if in_bucket(folder):
        with leased(folder):
            yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "a")
    except OSError as error:
        raise _cannot_write(folder, error) from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise InputError(
                f"{folder}: in use by another process: wait until it ends, or take another folder."
            ) from error
        yield


def size_in_words(size: float) -> str:
    """ "12 bytes", "3.40 KiB", "1.00 GiB": in the unit in which it is not 0.00."""
    if size < 1024:
        return f"{size:.0f} bytes"
    power = 1 + (size >= 1024**2) + (size >= 1024**3)
    return f"{size / 1024**power:,.2f} {('KiB', 'MiB', 'GiB')[power - 1]}"


def local_folder(name: str | os.PathLike) -> Path:
    """A folder or file by its name, for what is written on this machine only.

    Raises:
      InputError: a bucket's address ("gs://..."), which would become a local folder "gs:".
    """
    if in_bucket(name):
        raise InputError(
            f"{name}: not a folder; mount the bucket (gcsfuse) and name it there, or take a "
            f"folder of this machine and copy it: gcloud storage cp -r FOLDER {name}"
        )
    return Path(name)


def check_folder_name(path: Path) -> None:
    """Raises InputError if something else lies where a folder is to be."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: a file, where a folder is to be: move it away")


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block succeeds, and else disappears.

    Raises:
      InputError: `path` is there already, another process is making it, or it cannot be made.
    """
    path = local_folder(path)
    try:
        if os.path.lexists(path):
            raise InputError(f"{path}: is there already: choose another folder, or remove it")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_name(path)
        temporary.mkdir()
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        # After its own is made: of two that begin at once, none or one goes on, never both.
        for other in _temporaries(path) - {temporary}:
            raise InputError(
                f"{path}: another process is making it: wait until that ends, or choose another "
                f"folder. (If no process does, on no host, remove {other})"
            )
        yield temporary
        tree_to_disk(temporary)
        try:
            temporary.rename(path)
        except OSError as error:
            raise _cannot_write(path, error) from error
        names_to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporaries(path: Path) -> set[Path]:
    """What is to become `path`, by any process."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[^.]+\.\d+\.tmp")
    return {each for each in path.parent.iterdir() if pattern.fullmatch(each.name)}


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror}): choose another folder")
