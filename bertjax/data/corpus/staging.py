"""Copies corpora from a bucket to this machine, and checks them, before they are used.

A store is read through memory maps, which a bucket does not offer. The copies are in
$BERTJAX_CACHE (by default ~/.cache/bertjax), each under the identity of its data. They stay until
the user deletes them.
"""

import hashlib
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bertjax.base.cache_folder import cache_folder
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, exclusive, inside, size_in_words
from bertjax.base.progress import Progress

_AT_ONCE = 8  # files
_CHUNK = 16 << 20  # bytes


def staged(folder: Path, identity: str, files: Mapping[str, Mapping[str, Any]], last: str) -> Path:
    """This machine's copy of a folder in a bucket, which is made if it is missing.

    Files that were copied before are not copied again. If several processes need the copy, one of
    them makes it and the others wait.

    Args:
      identity: the name of the copy; folders with different contents must have different names.
      files: the name of each file in the folder -> its "bytes" and "sha256".
      last: the name of one more file, which is copied last and marks the copy as complete.

    Raises:
      InputError: a file is missing, damaged, or has a name that leads out of the folder; or the
        disk has too little space.
    """
    copy = inside(cache_folder(), identity, folder / last)
    for name in files:
        inside(copy, name, folder / last)
    if not (copy / last).exists():
        with exclusive(copy, wait=True):
            if not (copy / last).exists():
                _copy_files(folder, copy, files)
                with atomic_write(copy / last) as file:
                    file.write((folder / last).read_bytes())
                _announce_copy(folder, copy)
    return copy


def _announce_copy(folder: Path, copy: Path) -> None:
    """Prints where a new copy is, and how to delete it."""
    print(
        f"{folder}: copied to {copy}, {_size(copy)}, which stays there until you delete it: "
        f"rm -r {copy} (all of {copy.parent}: {_size(copy.parent)})",
        flush=True,
    )


def _size(folder: Path) -> str:
    return size_in_words(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()))


def _copy_files(folder: Path, copy: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    missing = {name: about for name, about in files.items() if not (copy / name).exists()}
    size, room = sum(about["bytes"] for about in missing.values()), shutil.disk_usage(copy).free
    if size > room:
        raise InputError(
            f"{folder}: {size_in_words(size)} to be copied to {copy}, where {size_in_words(room)} "
            "are free: free some space, or set BERTJAX_CACHE to a folder on a larger disk"
        )

    def copy_one(name: str) -> int:
        _copy_file(folder / name, copy / name, missing[name])
        return missing[name]["bytes"]

    with (
        Progress(f"Copying {folder}", size, "B", scale=True) as progress,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        for copied in pool.map(copy_one, missing):
            progress.update(copied)


def _copy_file(source: Path, target: Path, expected: Mapping[str, Any]) -> None:
    """Copies a file; the copy appears only if its size and checksum are the expected ones."""
    found, size = hashlib.sha256(), 0
    with atomic_write(target) as file:
        try:
            with source.open("rb") as original:
                while chunk := original.read(_CHUNK):
                    file.write(chunk)
                    found.update(chunk)
                    size += len(chunk)
        except FileNotFoundError as error:
            raise InputError(f"{source}: missing: {_AGAIN}") from error
        if (size, found.hexdigest()) != (expected["bytes"], expected["sha256"]):
            raise InputError(f"{source}: damaged ({size:,} bytes; its checksum differs): {_AGAIN}")


_AGAIN = "copy the corpus to the bucket again: gcloud storage rsync -r DIR gs://BUCKET/DIR"
