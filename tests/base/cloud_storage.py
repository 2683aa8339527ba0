"""A local emulator of Cloud Storage, which supports conditional writes and refused requests."""

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage


class _Refused(Exception):
    """Status 412: the object's generation is not the one that the request names."""


class _Conditional(Storage):
    """Objects in memory; a write is refused if the request names another generation."""

    expected: int | None = None

    def _check(self, bucket: str, name: str) -> None:
        try:
            generation = int(self.get_file_obj(bucket, name)["generation"])
        except NotFound:
            generation = 0
        if self.expected not in (None, generation):
            raise _Refused

    def create_file(self, bucket_name, file_name, *arguments, **more):
        self._check(bucket_name, file_name)
        return super().create_file(bucket_name, file_name, *arguments, **more)

    def delete_file(self, bucket_name, file_name, *arguments, **more):
        self._check(bucket_name, file_name)
        return super().delete_file(bucket_name, file_name, *arguments, **more)


class Cloud:
    """The server's state, which the tests read and change.

    Attributes:
      refused: method ("GET", "POST", "DELETE", ...) -> the status of all such requests, or 0 if
        the connection is closed without an answer; "BUCKET" means requests about a bucket itself.
      requests: method and path of every request.
    """

    def __init__(self):
        self.storage = _Conditional(use_memory_fs=True)
        self.refused: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []

    def make(self, bucket: str) -> None:
        buckets.create_bucket(bucket, self.storage)

    def names(self, bucket: str, folder: str = "") -> set[str]:
        """The names of the objects in a folder, relative to the folder."""
        prefix = f"{folder}/" if folder else ""
        objects = list(
            self.storage.objects.get(bucket, {})
        )  # a copy, because the server adds objects meanwhile
        return {name.removeprefix(prefix) for name in objects if name.startswith(prefix)}

    def read(self, bucket: str, name: str) -> bytes:
        return self.storage.get_file(bucket, name)

    def upload(self, folder: Path, address: str) -> None:
        """Uploads a folder like `gcloud storage cp -r`."""
        from bertjax.base.cloud_storage import path_of

        for path in folder.rglob("*"):
            if path.is_file():
                (path_of(address) / path.relative_to(folder)).write_bytes(path.read_bytes())


class _Handler(RequestHandler):
    def __init__(self, cloud: Cloud, *arguments):
        self._cloud = cloud
        super().__init__(cloud.storage, *arguments)

    def _answer(self, do) -> None:
        self._cloud.requests.append((self.command, self.path))
        of_bucket = re.fullmatch(".*/b/[^/]+", urlparse(self.path).path)
        for request in (self.command, "BUCKET" if of_bucket else ""):
            if request in self._cloud.refused:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._say(self._cloud.refused[request], "the test says no")
                return
        wanted = parse_qs(urlparse(self.path).query).get("ifGenerationMatch")
        self.storage.expected = int(wanted[0]) if wanted else None
        try:
            do()
        except BrokenPipeError:  # the client closed the connection
            self.close_connection = True
        except _Refused:
            self._say(412, "another generation")

    def _say(self, status: int, message: str) -> None:
        if not status:
            self.close_connection = True
            return
        body = json.dumps({"error": {"code": status, "message": message}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self._answer(super().do_GET)

    def do_POST(self):
        self._answer(super().do_POST)

    def do_PUT(self):
        self._answer(super().do_PUT)

    def do_DELETE(self):
        self._answer(super().do_DELETE)


@contextlib.contextmanager
def serving() -> Iterator[tuple[Cloud, dict[str, str]]]:
    """Yields the cloud, and the environment in which programs use it as Cloud Storage."""
    cloud = Cloud()
    with HTTPServer(("localhost", 0), partial(_Handler, cloud)) as server:
        address = f"http://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield (
                cloud,
                {
                    "STORAGE_EMULATOR_HOST": address,
                    "TENSORSTORE_GCS_HTTP_URL": address,
                    # Otherwise gcsfs would ask Google for the kind of bucket.
                    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
                },
            )
        finally:
            server.shutdown()
            thread.join()
