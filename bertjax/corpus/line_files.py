"""Files that are read line by line, compressed (.gz .xz .zst) or not, in bounded memory."""

import codecs
import contextlib
import glob
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from bertjax.base.errors import InputError
from bertjax.corpus.source import Extent, Range, Source

MAX_DOCUMENT_BYTES = 64 << 20


def files(pattern: str) -> list[Path]:
    """The files that match a glob, sorted. Raises InputError if none matches or all are empty."""
    paths = [Path(name) for name in sorted(glob.glob(os.path.expanduser(pattern), recursive=True))]
    found = [path for path in paths if path.is_file()]
    if not found:
        raise InputError(f"{pattern}: no such file: check the path (quote a glob for the shell).")
    if not any(path.stat().st_size for path in found):
        raise InputError(f"{pattern}: empty: {len(found)} files without a byte.")
    return found


def decompressor(path: Path) -> Callable[..., Any] | None:
    """The function that opens a compressed file for reading bytes; None if it is plain."""
    if path.suffix == ".gz":
        import gzip

        return gzip.open
    if path.suffix == ".xz":
        import lzma

        return lzma.open
    if path.suffix == ".zst":
        import pyarrow

        # Unlike other readers of this format, this one notices a truncated file.
        return lambda path, _: io.BufferedReader(pyarrow.input_stream(path, compression="zstd"))
    return None


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file, compressed or not; a damaged compressed file raises InputError."""
    opener = decompressor(path)
    if opener is None:
        with open(path, "rb") as file:
            yield file
        return
    import lzma
    import zlib

    with opener(path, "rb") as file:
        try:
            yield file
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(
                f"{path}: damaged or not a {path.suffix} file ({error}): fetch it again."
            ) from error


def lines(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields (byte offset, line with its end) for each line that begins at or after `start`.

    In a compressed file, offsets count decompressed bytes.
    """
    with open_bytes(path) as file:
        offset = 0
        if start:
            # The line that contains the byte before `start` belongs to the previous range.
            file.seek(start - 1)
            offset = start - 1 + len(file.readline(MAX_DOCUMENT_BYTES + 1))
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) > MAX_DOCUMENT_BYTES:
                raise InputError(
                    f"{path}: a line of more than {MAX_DOCUMENT_BYTES >> 20} MiB at byte {offset}: "
                    "is this a text file?"
                )
            yield offset, line.removeprefix(codecs.BOM_UTF8) if offset == 0 else line
            offset += len(line)


def line_number(path: Path, offset: int) -> int:
    """The number, from 1, of the line at `offset`. It reads the file, so only messages use it."""
    with open_bytes(path) as file:
        lines = 1
        while offset > 0 and (block := file.read(min(1 << 20, offset))):
            lines += block.count(b"\n")
            offset -= len(block)
    return lines


SKIP_HINT = "Convert it to UTF-8, or pass --undecodable=skip to leave such documents out."


def decoded_line(line: bytes, path: Path, offset: int, skip_undecodable: bool) -> str | None:
    """The text of the line at `offset`; None if it is not UTF-8, and such lines are skipped."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if skip_undecodable:
            return None
        raise InputError(
            f"{path}: not UTF-8 at byte {offset + error.start} (line "
            f"{line_number(path, offset)}, {error.reason}). {SKIP_HINT}"
        ) from error


class LineFiles(Source):
    """A source that is read line by line."""

    def __init__(self, pattern: str):
        self._pattern = pattern

    def extents(self) -> list[Extent]:
        sizes = [(path, path.stat().st_size) for path in files(self._pattern)]
        return [Extent(str(path), size, size, not decompressor(path)) for path, size in sizes]

    @staticmethod
    def stop(part: Range) -> float:
        """The offset at which a range ends; in a compressed file that is the file's end."""
        return float("inf") if decompressor(Path(part.path)) else part.stop
