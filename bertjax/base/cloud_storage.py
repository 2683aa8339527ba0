"""Buckets of Cloud Storage: paths "gs://BUCKET/...", access checks, and leases."""

import contextlib
import importlib.util
import logging
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.base.extras import install

# Without this, epath (which Orbax uses, too) would import TensorFlow if it is installed. epath
# reads the variable only once, so it is set before any path is made.
os.environ.setdefault("EPATH_USE_TF", "false")

_log = logging.getLogger(__name__)

# The owner renews its lease after the first time. Another job may take a lease that has not changed
# for the second time.
_RENEW_SECONDS, _DEAD_SECONDS = 15.0, 60.0
_REACH_SECONDS = 30.0  # the longest wait for a bucket that does not answer

# Google's libraries, gcsfs and TensorStore raise different exceptions; their messages have these.
_FORBIDDEN = re.compile(r"\bForbidden\b|PERMISSION_DENIED|^403\b|, 403$")
_UNKNOWN = re.compile(r"Unauthorized|UNAUTHENTICATED|^401\b|, 401$|response_code='401'")
# One of these is in the exception's class name or message after the library's own retries failed.
_LOST = re.compile(
    r"Connection|Connector|Disconnected|Timeout|CURL error|, 50[0234]$"
    "|UNAVAILABLE|DEADLINE_EXCEEDED"
)


def in_bucket(name: str | os.PathLike) -> bool:
    """Whether a name is an address in a bucket."""
    return "://" in os.fspath(name)


def path_of(name: str | os.PathLike) -> Path:
    """The path of that name; for a bucket, a path of the library epath with pathlib's methods.

    An object in a bucket appears only when it is written completely. A bucket has no real folders,
    no appending and no locks.
    """
    if not in_bucket(name):
        return Path(name)
    name = os.fspath(name)
    if not re.match("gs://[^/]", name):
        raise InputError(f"{name}: not a folder or a bucket: write a bucket as gs://BUCKET/FOLDER")
    if importlib.util.find_spec("gcsfs") is None:
        raise InputError(f"{name}: buckets need gcsfs: {install('gcs')}")
    import fsspec.config
    from etils import epath

    # Without the cache, objects that others write (such as TensorStore in this process) are found.
    fsspec.config.conf["gcs"] = {"use_listings_cache": False}
    return epath.Path(name)


def checked_path(name: str | os.PathLike, *, write: bool = False) -> Path:
    """The path of that name. In a bucket, access is checked first; also for writing if `write`."""
    path = path_of(name)
    if in_bucket(path):
        # ValueError: not a valid name.
        failures: tuple[type[Exception], ...] = (*_failures(), ValueError)
        try:
            _try_out(path, write)
        except failures as error:
            raise _input_error(error, path, write) from error
    return path


@contextlib.contextmanager
def bucket_errors(path: Path) -> Iterator[None]:
    """Raises InputError if a bucket refuses access or no longer answers; other errors stay."""
    try:
        yield
    except Exception as error:
        refused = _FORBIDDEN.search(str(error)) or _UNKNOWN.search(str(error))
        lost = _LOST.search(f"{type(error).__name__}: {error}")
        if not (in_bucket(path) and (refused or lost)):
            raise
        raise _input_error(error, path, write=True) from error


def _input_error(error: Exception, path: Path, write: bool) -> InputError:
    reason = " ".join(str(getattr(error, "message", error)).split())[:300]
    return InputError(f"{path}: {_hint(error, path, write)} ({reason})")


def _try_out(path: Path, write: bool) -> None:
    import google.cloud.storage as storage
    from google.cloud.storage.retry import DEFAULT_RETRY

    client, retry = storage.Client(project=None), DEFAULT_RETRY.with_timeout(_REACH_SECONDS)
    bucket, folder = _parts(path)
    next(iter(client.list_blobs(bucket, prefix=folder, max_results=1, retry=retry)), None)
    if write:
        storage.Client().get_bucket(bucket, retry=retry)  # Orbax needs it to delete a checkpoint
        probe = client.bucket(bucket).blob(_parts(path / f".probe-{uuid.uuid4().hex}")[1])
        probe.upload_from_string(b"", retry=retry)
        probe.delete(retry=retry)


def _failures() -> tuple[type[Exception], ...]:
    """The exceptions of a failed call to a bucket."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return GoogleAPIError, GoogleAuthError, OSError  # OSError: the connection failed


def _hint(error: Exception, path: Path, write: bool) -> str:
    from google.api_core.exceptions import NotFound
    from google.auth.exceptions import GoogleAuthError

    bucket, _ = _parts(path)
    if isinstance(error, NotFound):
        return f"no such bucket: gcloud storage buckets create gs://{bucket}"
    if isinstance(error, GoogleAuthError) or _UNKNOWN.search(str(error)):
        return "no credentials, or old ones: gcloud auth application-default login"
    if _FORBIDDEN.search(str(error)):
        verb, role = "read", "roles/storage.objectViewer"
        if write:
            verb, role = "write", "ROLE (roles/storage.objectUser and .legacyBucketReader)"
        return (
            f"not permitted to {verb} there: gcloud storage buckets add-iam-policy-binding "
            f"gs://{bucket} --member=user:YOU (of a TPU VM: serviceAccount:ITS_ACCOUNT) "
            f"--role={role}"
        )
    if "roject was not passed" in str(error):
        return "no project: set GOOGLE_CLOUD_PROJECT"
    return "cannot be reached: check the network, then run the command again"


def _parts(path: Path) -> tuple[str, str]:
    """Splits gs://BUCKET/NAME into ("BUCKET", "NAME")."""
    bucket, _, name = os.fspath(path).removeprefix("gs://").partition("/")
    return bucket, name


# ------------------------------------------------------------------------------- leases


@contextlib.contextmanager
def leased(folder: Path) -> Iterator[None]:
    """Reserves a folder in a bucket while the block runs; InputError if another job uses it.

    A bucket has no locks that end with their owner. So the owner writes the object `.lease` every
    15 seconds, if nobody else has written it, and deletes it at the end. After a job was killed,
    the next job watches the object for a minute, and takes it if it does not change; no clocks are
    compared. A job that was suspended, and has lost its folder, stops as after SIGTERM.
    """
    lease, ended = _Lease(folder), threading.Event()
    lease.take()
    renewing = threading.Thread(target=lease.renew_until, args=(ended,), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        lease.give_back()


class _Lease:
    """The object that names the owner of a folder."""

    def __init__(self, folder: Path):
        import google.cloud.storage as storage

        bucket, self._name = _parts(folder / ".lease")
        self._bucket, self._folder = storage.Client(project=None).bucket(bucket), folder
        self._owner = f"{socket.gethostname()}, process {os.getpid()} ({uuid.uuid4().hex[:8]})"
        self._generation = 0  # the generation that this job wrote last

    def _write(self, over: int) -> None:
        """Replaces the generation `over`; 0 means that no lease may exist."""
        blob = self._bucket.blob(self._name)
        blob.metadata = {"owner": self._owner}
        blob.upload_from_string(b"", if_generation_match=over)
        self._generation = blob.generation

    def _current_owner(self) -> tuple[int, str]:
        """The generation and the owner of the lease; (0, "") if it does not exist."""
        blob = self._bucket.get_blob(self._name)
        return (blob.generation, blob.metadata["owner"]) if blob else (0, "")

    def take(self) -> None:
        from google.api_core.exceptions import PreconditionFailed

        generation, owner = self._current_owner()
        if generation:
            print(
                f"{self._folder}: held by a job on {owner}; checking for {_DEAD_SECONDS:.0f} s "
                "whether it is alive",
                flush=True,
            )
            time.sleep(_DEAD_SECONDS)
            if not self._current_owner()[0]:  # released in the meantime
                generation = 0
        try:
            self._write(over=generation)
        except PreconditionFailed as error:
            raise InputError(
                f"{self._folder}: in use by another job, on {self._current_owner()[1]}: wait until "
                "it ends, or use another folder"
            ) from error

    def renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEW_SECONDS):
            try:
                if not self._renew():
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            except _failures() as error:
                _log.warning("%s: the lease is not renewed yet: %s", self._folder, error)

    def _renew(self) -> bool:
        """Renews the lease; returns False if another job has it."""
        from google.api_core.exceptions import PreconditionFailed

        try:
            self._write(over=self._generation)
        except PreconditionFailed:
            generation, owner = self._current_owner()
            if owner != self._owner:
                _log.error("%s: another job has it now, on %s", self._folder, owner)
                return False
            self._generation = generation  # it was written, but the answer was lost
        return True

    def give_back(self) -> None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        blob = self._bucket.blob(self._name)
        try:
            blob.delete(if_generation_match=self._generation)
        except (NotFound, PreconditionFailed):
            pass  # another job has it
        except _failures() as error:  # this must not hide the job's own error
            _log.warning("%s: the lease is not given back: %s", self._folder, error)
