"""Files that are complete or absent, folders with locks, and the JSON files of this package."""

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

from bertjax.base.cloud_storage import bucket_errors, in_bucket, leased, path_of
from bertjax.base.errors import InputError
from bertjax.base.validation import parsed


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
    """Gives the path to an error of the system in the block that has none, as of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


# ------------------------------------------------------------------------------- writing


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Opens `path` for writing; the file appears only when the block succeeds.

    The bytes go to a temporary name in the same folder. At the end, they and the folder's entry are
    brought to the disk, so after a power cut either the old file or the new one exists. For a
    bucket, the bytes are collected in memory and written as one object.
    """
    path = path_of(path)
    if in_bucket(path):
        collected = io.BytesIO() if "b" in mode else io.StringIO()
        yield collected
        value = collected.getvalue()
        with bucket_errors(path):
            path.write_bytes(value.encode() if isinstance(value, str) else value)
        return
    temporary = temporary_name(path)
    encoding = None if "b" in mode else "utf-8"
    try:
        file = open(temporary, mode, encoding=encoding)
    except FileNotFoundError as error:  # no such folder, or one in which nothing can be made
        raise _cannot_write(path, error) from error
    try:
        with named(path), file:
            yield file
            to_disk(file)
        os.replace(temporary, path)
        names_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def to_disk(file: IO) -> None:
    """Brings the content of a file to the disk, where it survives a power cut."""
    file.flush()
    os.fsync(file.fileno())


def names_to_disk(folder: Path) -> None:
    """Brings the entries of a folder to the disk: which files exist, and their names."""
    with contextlib.suppress(OSError):  # network file systems may not support it
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def tree_to_disk(folder: Path) -> None:
    """Brings a folder with its whole content to the disk."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            names_to_disk(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def temporary_name(path: Path) -> Path:
    """A temporary name next to `path`; first, files of processes that have ended are removed."""
    _remove_leftovers(path.parent.absolute())
    return path.with_name(f".{path.name}.{_home()}.{os.getpid()}.tmp")


def _home() -> str:
    """A name of this host and container, in which process numbers are unique."""
    host = re.sub(r"[^\w-]", "-", socket.gethostname())
    container = Path("/proc/self/ns/pid")  # exists on Linux
    return f"{host}-{container.stat().st_ino}" if container.exists() else host


_looked_through: set[Path] = set()
_looking = threading.Lock()


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of this host's processes that have ended; once for each folder."""
    with _looking:
        if folder in _looked_through:
            return
        _looked_through.add(folder)
        for path in folder.glob(f".*.{_home()}.*.tmp"):
            process = path.suffixes[-2][1:]
            # A file with this process's number belongs to an earlier process, because this one has
            # not written to the folder yet.
            if process.isdecimal() and (int(process) == os.getpid() or not _lives(int(process))):
                with contextlib.suppress(OSError):  # of another user
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # of another user; not a process number
        return True
    return True


# ---------------------------------------------------------------------------------- JSON


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    with atomic_write(path, "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path, type_: Any = dict, *, hint: str) -> dict[str, Any]:
    """Reads a JSON object of type `type_`; InputError with `hint` if the file is damaged."""
    with named(path):
        data = path.read_bytes()
    return parsed(data, type_, path, hint)


# ------------------------------------------------------------------------- names, folders


def inside(folder: Path, name: Any, origin: str | os.PathLike) -> Path:
    """The path of a file in a folder, for a plain name that comes from the untrusted `origin`."""
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise InputError(
            f"{origin}: names the file {name!r:.200}, but may name only files directly in "
            f"{folder}: it is damaged or not trustworthy: use another copy"
        )
    return folder / name


def sha256_of_file(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's bytes in hexadecimal, computed in bounded memory."""
    with named(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_by_content(path: Path, final: Path) -> Path:
    """Renames a finished file to STEM-DIGEST.SUFFIX of `final`, so that damage can be detected."""
    named = final.with_name(f"{final.stem}-{_short_digest(path)}{final.suffix}")
    os.replace(path, named)
    names_to_disk(named.parent)
    return named


def content_named(final: Path) -> Path | None:
    """The file that `name_by_content` made for `final`; None if it does not exist."""
    return next(final.parent.glob(f"{final.stem}-{_DIGEST}{final.suffix}"), None)


def contents_named(folder: Path, suffix: str) -> list[Path]:
    """All files with this suffix in a folder that `name_by_content` named."""
    return list(folder.glob(f"*-{_DIGEST}{suffix}"))


def check_content(path: Path) -> None:
    """Raises InputError if a file of `name_by_content` differs from the digest in its name."""
    if not path.is_file() or not path.stem.endswith(f"-{_short_digest(path)}"):
        raise InputError(
            f"{path}: damaged (its content does not match the checksum in its name): remove it "
            "and repeat the command, which makes it again"
        )


_DIGITS = 16
_DIGEST = "[0-9a-f]" * _DIGITS


def _short_digest(path: Path) -> str:
    return sha256_of_file(path)[:_DIGITS]


@contextlib.contextmanager
def exclusive(folder: str | os.PathLike, *, wait: bool = False) -> Iterator[None]:
    """Locks `folder` for this process while the block runs; makes the folder if it is missing.

    The lock is on the file `.lock` in it, which stays; the system releases it when the process
    ends. A folder in a bucket gets a lease (`bertjax.base.cloud_storage.leased`). If another
    process has the lock, this raises InputError, or waits if `wait`.
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
                f"{folder}: in use by another process: wait until it ends, or use another folder."
            ) from error
        yield


def in_use(folder: Path) -> bool:
    """Whether another process has locked a folder of this machine with `exclusive`."""
    if not (folder / ".lock").exists():
        return False
    with open(folder / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def size_in_words(size: float) -> str:
    """Formats a size in the largest fitting unit: "12 bytes", "3.40 KiB", "1.00 GiB"."""
    if size < 1024:
        return f"{size:.0f} bytes"
    power = 1 + (size >= 1024**2) + (size >= 1024**3)
    return f"{size / 1024**power:,.2f} {('KiB', 'MiB', 'GiB')[power - 1]}"


def local_folder(name: str | os.PathLike) -> Path:
    """The path of a folder or file on this machine; InputError if it is a bucket's address."""
    if in_bucket(name):
        raise InputError(
            f"{name}: not a folder; mount the bucket (gcsfuse) and name the mounted folder, or use "
            f"a folder of this machine and copy it: gcloud storage cp -r FOLDER {name}"
        )
    return Path(name)


def no_file(path: str | os.PathLike) -> str:
    """Says of a path that is not a file what it is, and what to do."""
    path = Path(path)
    if path.is_dir():
        return "a folder, where a file is needed: name a file in it"
    if path.exists():
        return "a pipe or a device, which cannot be read twice: save what it gives in a file"
    return "no such file: check the path"


def check_folder_name(path: Path) -> None:
    """Raises InputError if `path` exists and is not a folder."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: a file, but a folder is needed here: move it away")


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary folder that becomes the new `path` if the block succeeds."""
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
        # Checked after the own temporary folder is made: of two processes that begin at the same
        # time, at most one continues.
        for other in _temporaries(path) - {temporary}:
            raise InputError(
                f"{path}: another process is making it: wait until that ends, or choose another "
                f"folder. (If no process does, on no host, remove {other})"
            )
        with named(path):
            yield temporary
            tree_to_disk(temporary)
        try:
            temporary.rename(path)
        except OSError as error:
            raise _cannot_write(path, error) from error
        names_to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder that takes the place of `path` when the block succeeds.

    The folder is absent for a moment.
    """
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        with named(path):
            yield temporary
            tree_to_disk(temporary)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
        names_to_disk(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporaries(path: Path) -> set[Path]:
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[^.]+\.\d+\.tmp")
    return {each for each in path.parent.iterdir() if pattern.fullmatch(each.name)}


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror}): choose another folder")
