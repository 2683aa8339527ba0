"""Files that are whole or absent, and folders with one process at work in them."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bertjax.buckets import in_bucket, leased, path_of
from bertjax.errors import InputError


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Opens `path` for writing such that it appears only when the block succeeds.

    The bytes go to a temporary name in the same folder; leaving the block flushes
    them to disk and renames. If the block raises (a full disk included), the
    temporary file is removed and an earlier `path` stays as it was. In a bucket the
    bytes are collected in memory, and written as one object.
    """
    path = path_of(path)
    if in_bucket(path):
        collected = io.BytesIO() if "b" in mode else io.StringIO()
        yield collected
        value = collected.getvalue()
        path.write_bytes(value if "b" in mode else value.encode())
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path, "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def sha256_of_file(path: str | os.PathLike) -> str:
    """Hex SHA-256 of a file's bytes, read in bounded memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
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


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block succeeds, and else disappears.

    Raises:
      InputError: `path` is there already, or cannot be made.
    """
    path = local_folder(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists():
            raise InputError(f"{path}: is there already: choose another folder, or remove it")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise _cannot_write(path, error) from error
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror}): choose another folder")
