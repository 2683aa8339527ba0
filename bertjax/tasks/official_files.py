"""The files of a data set, under their official names, plain or compressed."""

from collections.abc import Iterator
from pathlib import Path

from bertjax.corpus import sources
from bertjax.errors import InputError

COMPRESSED = ("", ".gz", ".xz", ".zst")


def find(folder: Path, *names: str) -> Path:
    """The one of `names` that is in `folder`, as it is or compressed.

    Raises:
      InputError: none is, or several are.
    """
    paths = (folder / (name + suffix) for name in names for suffix in COMPRESSED)
    there = [path for path in paths if path.is_file()]
    if len(there) > 1:
        raise InputError(
            f"{folder}: has {' and '.join(path.name for path in there)}, and one of them is read: "
            "leave the one that is meant, and move the others away"
        )
    if not there:
        what = f"no {' or '.join(names)} in it" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {what}: name the folder that has {names[0]} (or compressed, {names[0]}.xz)"
        )
    return there[0]


def exists(folder: Path, *names: str) -> bool:
    """Whether `find` finds one."""
    return any((folder / (name + suffix)).is_file() for name in names for suffix in COMPRESSED)


def ending(path: Path) -> str:
    """That of a file's name, before that of its compression: ".csv" of "a.csv.gz"."""
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def lines(folder: Path, *names: str) -> Iterator[str]:
    r"""The lines of a file without their ends; only "\n" ends one, and a "\r" before it goes too.

    Raises:
      InputError: see `find`; a damaged file; a line that is not UTF-8.
    """
    path = find(folder, *names)
    for number, (_, line) in enumerate(sources.lines(path, 0), start=1):
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path} line {number}: not UTF-8 at its byte {error.start} ({error.reason}): "
                "convert it"
            ) from error


def text(folder: Path, *names: str) -> tuple[Path, str]:
    """A whole file of UTF-8, and which one it is.

    Raises:
      InputError: see `lines`.
    """
    path = find(folder, *names)
    with sources.open_bytes(path) as file:
        data = file.read()
    try:
        return path, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 at byte {error.start} ({error.reason}): convert it"
        ) from error
