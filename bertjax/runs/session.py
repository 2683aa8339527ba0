"""The time in which all hosts of a job work in the folder of a run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED
from bertjax.runs.preflight import check_folder
from bertjax.training.sharding.hosts import exclusive_on_first, heartbeat


@contextlib.contextmanager
def session(folder: Path, state: Any = (), checkpoints: int = 1) -> Iterator[None]:
    """Holds a folder for this job while the block runs; makes it if it is missing.

    All hosts notice if one of them is lost in the block (`heartbeat`). All raise InputError if one
    cannot write the folder, if there is no room for so many checkpoints of `state` at a time
    (shapes and dtypes), or if another job holds it.
    """
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    check_folder(folder, size, checkpoints)
    with exclusive_on_first(folder), heartbeat(exit_code_when_lost=EXIT_STOPPED):
        yield
