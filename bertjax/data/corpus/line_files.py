"""Files that are read line by line, compressed (.gz .xz .bz2 .zst) or not, in bounded memory.

A name is a path, or an address that fsspec reads.
"""

import codecs
import contextlib
import glob
import io
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from bertjax.base.errors import InputError
from bertjax.base.files import named, no_file
from bertjax.data.corpus.remote_files import RemoteFile, find_remote, is_remote, open_remote
from bertjax.data.corpus.source import Extent, Range, Skip, Source

MAX_DOCUMENT_BYTES = 64 << 20
_BLOCK = 1 << 16  # bytes of a compressed file


def files(pattern: str) -> list[RemoteFile]:
    """The files that match a glob or an address, sorted; InputError if there is none with text."""
    if is_remote(pattern):
        found = find_remote(pattern)
    else:
        names = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        found = [RemoteFile(n, os.path.getsize(n), "") for n in names if os.path.isfile(n)]
        if names and not found:
            raise InputError(f"{names[0]}: {no_file(names[0])}")
    if not found:
        raise InputError(f"{pattern}: no such file: check the path (quote a glob for the shell).")
    if not any(file.size for file in found):
        raise InputError(f"{pattern}: empty: {len(found)} files without a byte.")
    return found


def decompressor(name: str) -> Callable[[IO[bytes]], IO[bytes]] | None:
    """The function that decompresses an open file; None if the file is plain."""
    if is_remote(name):
        link = next(link for link in name.split("::") if is_remote(link))  # the file, in an archive
        name = link.partition("?")[0]  # what follows is a query
    return _DECOMPRESSORS.get(os.path.splitext(name)[1])


def _gz(file: IO[bytes]) -> IO[bytes]:
    import gzip

    return cast(IO[bytes], gzip.open(file))


def _xz(file: IO[bytes]) -> IO[bytes]:
    import lzma

    return io.BufferedReader(_Streams(file, lzma.LZMADecompressor), _BLOCK)


def _bz2(file: IO[bytes]) -> IO[bytes]:
    import bz2

    return io.BufferedReader(_Streams(file, bz2.BZ2Decompressor), _BLOCK)


def _zst(file: IO[bytes]) -> IO[bytes]:
    import pyarrow

    # Unlike other readers of this format, this one notices a truncated file.
    return io.BufferedReader(pyarrow.input_stream(file, compression="zstd"))


_DECOMPRESSORS = {".gz": _gz, ".xz": _xz, ".bz2": _bz2, ".zst": _zst}
COMPRESSED = tuple(_DECOMPRESSORS)


class _Streams(io.RawIOBase):
    """Decompresses joined streams; Python's readers of .xz and .bz2 hide damage in later ones."""

    def __init__(self, file: IO[bytes], stream: Callable[[], Any]):
        self._file, self._new = file, stream
        self._stream = stream()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = b""
        while not data:
            block = b""
            if self._stream.eof:
                if not (block := self._next_stream()):
                    return 0
                self._stream = self._new()
            elif self._stream.needs_input and not (block := self._file.read(_BLOCK)):
                raise EOFError("it ends too early")
            data = self._stream.decompress(block, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next_stream(self) -> bytes:
        """The beginning of what follows a stream and its padding; empty at the end of the file."""
        following = self._stream.unused_data.lstrip(b"\0")
        while not following and (block := self._file.read(_BLOCK)):
            following = block.lstrip(b"\0")
        return following


def open_file(name: str, buffering: int = -1) -> IO[bytes]:
    """Opens a file or an address for reading its bytes, compressed as they are."""
    return open_remote(name, buffering) if is_remote(name) else open(name, "rb", buffering)


@contextlib.contextmanager
def open_bytes(name: str) -> Iterator[IO[bytes]]:
    """Opens a file, compressed or not; a damaged compressed file raises InputError."""
    decompress = decompressor(name)
    with open_file(name) as file:
        if decompress is None:
            with named(name):
                yield file
            return
        import lzma
        import zlib

        try:
            if not file.read(1):
                raise EOFError("it has no byte")
            file.seek(0)
            with decompress(file) as content:
                yield content
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(
                f"{name}: damaged or not a {os.path.splitext(name)[1]} file ({error}): fetch it "
                "again."
            ) from error


def lines(name: str, start: int) -> Iterator[tuple[int, bytes]]:
    """Yields (offset in decompressed bytes, line with its end) for lines from `start` on."""
    with open_bytes(name) as file:
        offset = 0
        if start:
            # The line that contains the byte before `start` belongs to the previous range.
            file.seek(start - 1)
            offset = start - 1 + len(file.readline(MAX_DOCUMENT_BYTES + 1))
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) > MAX_DOCUMENT_BYTES:
                raise InputError(
                    f"{name}: a line of more than {MAX_DOCUMENT_BYTES >> 20} MiB at byte {offset}: "
                    "is this a text file?"
                )
            yield offset, line.removeprefix(codecs.BOM_UTF8) if offset == 0 else line
            offset += len(line)


def not_text(value: Any) -> str:
    """Says what stands where a text is needed; of a null, also what to do."""
    return _NULL if value is None else f"{type(value).__name__}, not text."


def is_blank(line: bytes) -> bool:
    """Whether a line is white space, of which U+00A0 and U+3000 are some, as for `str.strip`."""
    return not line.decode("utf-8", "replace").strip()


def at_line(name: str, offset: int) -> str:
    """The file and the number of the line at `offset`, for a message: it reads the file."""
    with open_bytes(name) as file:
        lines = 1
        while offset > 0 and (block := file.read(min(1 << 20, offset))):
            lines += block.count(b"\n")
            offset -= len(block)
    return f"{name} line {lines}"


SKIP_HINT = "Convert it to UTF-8, or pass --undecodable=skip to leave such documents out."
_NULL = "null, not text. Write a text there, or pass --nulls=skip to leave such documents out."


def decoded_line(line: bytes, name: str, offset: int, skip: Skip) -> str | None:
    """The text of the line at `offset`; None if it is not UTF-8, and such lines are skipped."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if Skip.UNDECODABLE in skip:
            return None
        byte = f"not UTF-8 at byte {offset + error.start} of the file ({error.reason})"
        raise InputError(f"{at_line(name, offset)}: {byte}. {SKIP_HINT}") from error


class LineFiles(Source):
    """A source that is read line by line."""

    def __init__(self, pattern: str):
        self._pattern = pattern

    def extents(self) -> list[Extent]:
        return [
            Extent(file.name, file.size, file.size, not decompressor(file.name), file.version)
            for file in files(self._pattern)
        ]

    def lines(self, range_: Range) -> Iterator[tuple[int, bytes]]:
        """Yields (byte offset, line) for each line that begins in a range and is not blank."""
        stop = self.stop(range_)
        for offset, line in lines(range_.path, range_.start):
            if offset >= stop:
                return
            if not is_blank(line):
                yield offset, line

    @staticmethod
    def stop(range_: Range) -> float:
        """The offset at which a range ends; in a compressed file that is the file's end."""
        return float("inf") if decompressor(range_.path) else range_.stop
