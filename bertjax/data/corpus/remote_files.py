"""Files under addresses, such as hf://, gs://, s3:// and https://, listed and read by fsspec.

A file is read in blocks, so its size does not matter. If a block fails, it is asked for again.
An address may name a file of an archive, as in zip://*.txt::https://HOST/A.zip.
"""

import io
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from glob import has_magic
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from bertjax.base.errors import InputError
from bertjax.base.extras import install

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientTimeout
    from fsspec import AbstractFileSystem

_BLOCK = 4 << 20  # bytes
_WAITS = (1.0, 4.0, 16.0)  # seconds before each further try
_SILENCE = 15.0  # seconds without a byte after which a try has failed

# Protocol -> the command that installs its library. fsspec itself names those of the others.
_INSTALLED_BY = {
    **dict.fromkeys(("gs", "gcs"), install("gcs")),
    **dict.fromkeys(("s3", "s3a"), install("s3")),
    **dict.fromkeys(("http", "https"), install("http")),
}
_TOKENS = {
    "hf": "check the name, or set HF_TOKEN and accept the terms on the page of the data set",
    **dict.fromkeys(("gs", "gcs"), "gcloud auth application-default login"),
    **dict.fromkeys(
        ("s3", "s3a"),
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for a public bucket "
        """FSSPEC_S3='{"anon": true}'""",
    ),
}

# The libraries that fsspec uses raise different exceptions. Their names and messages have these.
_FORBIDDEN = re.compile(
    r"^\w+: 40[13]\b|, 40[13]$|Forbidden|Unauthorized|AccessDenied|PermissionError|Credential|Gated"
)
_MISSING = re.compile(r"^\w+: 404\b|, 404$|404 Not Found|FileNotFoundError|NotFound|NoSuch")
_NO_RANGES = re.compile("support range requests|Cannot seek streaming")
_DAMAGED = re.compile("^(BadZipFile|ReadError|LibarchiveError)")

# The places in the information about a file where a file system tells one content from another.
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "Last-Modified")

T = TypeVar("T")


class RemoteFile(NamedTuple):
    """A file that was found: its address, its bytes, and what tells its content from another."""

    name: str
    size: int
    version: str


def is_remote(name: str) -> bool:
    """Whether a name is an address, which fsspec reads."""
    return "://" in name


def find_remote(pattern: str) -> list[RemoteFile]:
    """The files of an address, sorted; `*`, `[...]` and, except in https://, `?` are a glob's.

    Raises:
      InputError: the protocol is not known or its library is missing; or the place refuses the
        access or does not answer. A missing file is no error: the list is empty.
    """
    _, chain, archive = pattern.partition("::")

    def search() -> list[RemoteFile]:
        system, path = _system(pattern)
        is_query = _protocol(pattern).startswith("http")
        magic = has_magic(path.replace("?", "") if is_query else path)
        names = system.glob(path) if magic else [path]
        found = [(system.unstrip_protocol(name), system.info(name)) for name in sorted(names)]
        return [
            _described(name + chain + archive, info)
            for name, info in found
            if info["type"] == "file"
        ]

    try:
        return _tried(search, pattern)
    except FileNotFoundError:
        return []


def open_remote(name: str, buffering: int = -1) -> IO[bytes]:
    """Opens one file for reading bytes, from any place of it, in blocks unless `buffering` is 0."""
    reader = _Reader(name)
    return cast(IO[bytes], io.BufferedReader(reader, _BLOCK) if buffering else reader)


class _Reader(io.RawIOBase):
    """Reads a file in blocks. A block that fails is asked for again, on a new connection."""

    def __init__(self, name: str):
        self._name = name
        self._place, self._size = 0, -1
        self._file: Any = None
        self._with_retries(lambda: None)

    def _with_retries(self, use: Callable[[], T]) -> T:
        """The result of `use`, which may need several connections."""

        def once() -> T:
            if self._file is None:
                self._system, path = _system(self._name)  # without it, an archive is closed
                self._file = self._system.open(path, block_size=_BLOCK, cache_type="none")
                size, before = self._file.seek(0, io.SEEK_END), self._size
                if before not in (-1, size):
                    raise InputError(
                        f"{self._name}: had {before:,} bytes, and now {size:,}: it was replaced "
                        "while it was read: run the command again"
                    )
                self._size = size
            try:
                return use()
            except Exception:
                self._file = None
                raise

        try:
            return _tried(once, f"{self._name} at byte {self._place:,}")
        except FileNotFoundError as error:
            raise InputError(f"{self._name}: no such file (any more).") from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}
        self._place = starts[whence] + offset
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        """Fills the buffer, unless the file ends at its size: each call may need several reads."""
        size = min(len(buffer), max(0, self._size - self._place))
        read = 0
        while read < size:
            data = self._with_retries(partial(self._read_some, size - read))
            buffer[read : read + len(data)] = data
            read += len(data)
            self._place += len(data)
        return read

    def _read_some(self, most: int) -> bytes:
        """At least one byte from the present place."""
        self._file.seek(self._place)
        if data := self._file.read(most):
            return data
        raise EOFError(f"the file ends before its size of {self._size:,} bytes")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()


def _protocol(name: str) -> str:
    return name.partition("://")[0]


def _system(name: str) -> "tuple[AbstractFileSystem, str]":
    import fsspec

    protocol = _protocol(name)
    try:
        return fsspec.core.url_to_fs(name, **_patience(name))
    except ImportError as error:
        raise InputError(f"{name}: {_INSTALLED_BY.get(protocol, error)}") from error
    except ValueError as error:
        known = "hf://, gs://, s3:// and https://, and the others of fsspec"
        raise InputError(f"{name}: {error}: addresses begin with {known}.") from error


def _patience(name: str) -> dict[str, dict[str, Any]]:
    """Options that end a stalled try: the libraries of http and of Google wait too long."""
    protocols = set(map(_protocol, name.split("::")))
    options: dict[str, dict[str, Any]] = {}
    options |= {each: {"get_client": _client} for each in protocols & {"http", "https"}}
    options |= {each: {"requests_timeout": _timeout()} for each in protocols & {"gs", "gcs"}}
    return options


async def _client(**options: Any) -> "ClientSession":
    from aiohttp import ClientSession

    return ClientSession(**{"timeout": _timeout()} | options)


def _timeout() -> "ClientTimeout":
    from aiohttp import ClientTimeout

    return ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)


def _described(name: str, info: dict[str, Any]) -> RemoteFile:
    if info["size"] is None:
        raise InputError(f"{name}: the server does not tell its size: download the file first.")
    version = next((info[key] for key in _VERSIONS if info.get(key)), "")
    return RemoteFile(name, info["size"], str(version))


def _tried(use: Callable[[], T], where: str) -> T:
    """The result of `use`, which is called again after a failure that may pass."""
    for number, wait in enumerate((*_WAITS, None), start=2):
        try:
            return use()
        except InputError:
            raise
        except Exception as error:  # each library below fsspec has exceptions of its own
            origin = _origin(error)
            text = f"{type(origin).__name__}: {origin}"
            if _FORBIDDEN.search(text):
                hint = _TOKENS.get(_protocol(where), "check its address, and what you may read")
                raise InputError(
                    f"{where}: the access is refused: {hint} ({_line(text)})"
                ) from error
            if _NO_RANGES.search(text):
                raise InputError(
                    f"{where}: the server sends whole files only: download the file first."
                ) from error
            if _MISSING.search(text):
                raise FileNotFoundError(where) from error
            if _DAMAGED.search(text):
                raise InputError(f"{where}: damaged: fetch it again ({_line(text)})") from error
            if wait is None:
                raise InputError(
                    f"{where}: cannot be read, after {len(_WAITS) + 1} tries: check the network, "
                    f"then run the command again ({_line(text)})"
                ) from error
        what = f"{where}: {_line(text)}: try {number} of {len(_WAITS) + 1} in {wait:g} s"
        print(what, file=sys.stderr, flush=True)
        time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _origin(error: BaseException) -> BaseException:
    """The first of the exceptions that led to this one: fsspec calls many FileNotFoundError."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
