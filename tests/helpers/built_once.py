"""Builds data that many tests read and no test writes; the first test process to ask builds it."""

import fcntl
import functools
import hashlib
import shutil
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tests.helpers.checkout import REPOSITORY
from tests.helpers.programs import not_counted

_ROOT = REPOSITORY / ".cache" / "tests"
_CODE = ("bertjax/**/*.py", "configs/*.py", "tests/**/*.py")
_LIBRARIES = ("jax", "flax", "optax", "orbax-checkpoint", "tokenizers")


@functools.cache
def _folder() -> Path:
    """The folder for the current code. Folders of earlier days are removed."""
    digest = hashlib.sha256(repr([version(name) for name in _LIBRARIES]).encode())
    for path in sorted(path for pattern in _CODE for path in REPOSITORY.glob(pattern)):
        # A test's code does not affect what is built, but a helper's code may.
        if not path.name.startswith("test_"):
            digest.update(f"{path.relative_to(REPOSITORY)}\n".encode() + path.read_bytes())
    folder = _ROOT / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for other in _ROOT.iterdir():  # a folder of today may be in use
        if other != folder and time.time() - other.stat().st_mtime > 24 * 3600:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def built_once(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name`, which `build` fills once; meanwhile, other processes wait for it.

    It stays until the code changes, so that the next run of the suite can use it.
    """
    folder = _folder() / name
    with open(_folder() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        whole = _folder() / f"{name}.whole"
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with not_counted():
                build(folder)
            whole.touch()
    return folder
