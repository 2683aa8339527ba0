"""Checkpoints: everything that must agree, saved together, restored anywhere."""

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as ocp

from bertjax.buckets import in_bucket
from bertjax.errors import InputError

_log = logging.getLogger(__name__)


def _checksums(tree: Any) -> Any:
    """uint32 for each leaf: the sum of its words, the same however the leaf is sharded."""

    def checksum(leaf):
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32) if leaf.dtype.itemsize == 4 else leaf
        return words.astype(jnp.uint32).sum(dtype=jnp.uint32)

    return jax.tree.map(checksum, tree)


class _Part(NamedTuple):
    tree: Any
    checksums: Any


def _abstract_part(tree: Any) -> _Part:
    mesh = jax.tree.leaves(tree)[0].sharding.mesh
    whole = NamedSharding(mesh, PartitionSpec())
    sums = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), jnp.uint32, sharding=whole), tree)
    return _Part(tree, sums)


def _sealed(metadata: dict[str, Any]) -> dict[str, str]:
    text = json.dumps(metadata)
    return {"json": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _unsealed(sealed: dict[str, str]) -> dict[str, Any]:
    if hashlib.sha256(sealed["json"].encode()).hexdigest() != sealed["sha256"]:
        raise ValueError("checksum of the metadata differs")
    return json.loads(sealed["json"])


def _anywhere(condition: bool) -> bool:
    """Whether the condition holds on any process."""
    if jax.process_count() == 1:
        return condition
    return bool(multihost_utils.process_allgather(np.array(condition)).any())


class Checkpoints:
    """The checkpoints of one run, in `directory`.

    Args:
      directory: made if it is not there; it may be in a bucket.
      keep: how many of the newest to keep; the older ones are deleted.
      keep_every: besides these, keep every one whose step is a multiple of this; 0 for none.
      read_only: leave alone what an interrupted save, or one under way, has left there.
    """

    def __init__(self, directory: Path, *, keep: int, keep_every: int = 0, read_only: bool = False):
        policies = [ocp.training.preservation_policies.LatestN(keep)]
        if keep_every:
            policies.append(ocp.training.preservation_policies.EveryNSteps(keep_every))
        self._directory = directory
        self._checkpointer = ocp.training.Checkpointer(
            directory if in_bucket(directory) else directory.absolute(),
            preservation_policy=ocp.training.preservation_policies.AnyPreservationPolicy(policies),
            cleanup_tmp_directories=not read_only,
        )
        self._checksums = jax.jit(_checksums)

    def save(self, step: int, parts: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Starts saving in the background; returns when the arrays have left the devices.

        A checkpoint appears under its name when it is whole, never before. In a bucket, where
        nothing is renamed, its object commit_success.txt appears then.

        Args:
          parts: name -> tree of arrays; what may be restored without the others is a part.
          metadata: JSON.
        """
        sealed = {
            name: _Part(tree, self._checksums(tree))._asdict() for name, tree in parts.items()
        }
        with self._system_errors():
            self._checkpointer.save_checkpointables_async(
                step, sealed, custom_metadata=_sealed(metadata), overwrite=True, force=True
            )

    def restore(self, abstract: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Parts of the newest whole checkpoint, and its metadata; None where there is none.

        One with a missing or damaged part is passed over, saying so.

        Args:
          abstract: name -> shapes, dtypes and shardings of a part; the shardings need not be
            those it was saved with.

        Raises:
          InputError: checkpoints are there, and none of them is whole.
        """
        steps = [checkpoint.step for checkpoint in self._checkpointer.checkpoints]
        targets = {name: _abstract_part(tree)._asdict() for name, tree in abstract.items()}
        for step in sorted(steps, reverse=True):
            loaded, metadata, damage = self._try_load(step, targets)
            # All processes go on together: what one of them could not read, none takes.
            if _anywhere(bool(damage)):
                damage = damage or "another process could not read it"
            else:
                damage = self._wrong_checksums(loaded)
            if not damage:
                return {name: loaded[name]["tree"] for name in abstract}, metadata
            _log.warning(
                "checkpoint %s is damaged (%s); trying the one before it",
                self._directory / str(step),
                damage,
            )
        if steps:
            raise InputError(
                f"{self._directory}: none of the checkpoints {sorted(steps)} is whole: restore "
                "one from a copy, or begin again in another --workdir"
            )
        return None

    def _try_load(self, step: int, targets: dict[str, Any]) -> tuple[Any, Any, str]:
        """What was saved and its metadata; or what is wrong with it."""
        try:
            metadata = _unsealed(self._checkpointer.metadata(step).custom_metadata)
            return self._checkpointer.load_checkpointables(step, targets), metadata, ""
        except (MemoryError, PermissionError, jax.errors.JaxRuntimeError):
            raise  # no fault of the checkpoint
        except Exception as error:  # Orbax and TensorStore raise many kinds for a damaged file
            while error.__cause__:
                error = error.__cause__
            reason = " ".join(str(error).split())[:300]
            return None, None, f"{type(error).__name__}: {reason}"

    def _wrong_checksums(self, loaded: dict[str, Any]) -> str:
        """Which arrays are not what was saved; "" if all are."""
        wrong = []
        for part in loaded.values():
            found = jax.device_get(self._checksums(part["tree"]))
            same = jax.tree.map(np.array_equal, jax.device_get(part["checksums"]), found)
            wrong += [
                jax.tree_util.keystr(path)
                for path, equal in jax.tree.leaves_with_path(same)
                if not equal
            ]
        return f"checksums differ: {', '.join(wrong[:3])}" if wrong else ""

    @contextlib.contextmanager
    def _system_errors(self) -> Iterator[None]:
        """Turns TensorStore's report of a failed write (a full disk) into the `OSError` it is."""
        try:
            yield
        except Exception as error:
            code = re.search(r"os_error_code='(\d+)'", str(error))
            if code is None:
                raise
            number = int(code[1])
            raise OSError(number, os.strerror(number), str(self._directory)) from error

    def wait(self) -> None:
        """Waits for the save under way."""
        with self._system_errors():
            self._checkpointer.wait()

    def close(self) -> None:
        """Waits for the last save."""
        with self._system_errors():
            self._checkpointer.close()
