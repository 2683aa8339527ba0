"""Checkpoints: all that must agree is saved together, and restored on any sharding."""

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import empty_node, flatten_dict, unflatten_dict
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as ocp

from bertjax.base.cloud_storage import bucket_errors, in_bucket
from bertjax.base.errors import InputError
from bertjax.base.files import check_folder_name, tree_to_disk
from bertjax.base.renames import renamed, reverse

_log = logging.getLogger(__name__)


def _is_told_once(record: logging.LogRecord) -> bool:
    """False for a traceback that Orbax logs; it raises the exception in our thread as well."""
    return not (record.exc_info and "/orbax/checkpoint/" in record.pathname)


logging.getLogger("absl").addFilter(_is_told_once)


def _checksums(tree: Any) -> Any:
    """A uint32 for each leaf: the sum of its words, which does not depend on the sharding."""

    def checksum(leaf: jax.Array) -> jax.Array:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32) if leaf.dtype.itemsize == 4 else leaf
        return words.astype(jnp.uint32).sum(dtype=jnp.uint32)

    return jax.tree.map(checksum, tree)


class _Checked(NamedTuple):
    tree: Any
    checksums: Any


def _abstract(tree: Any) -> _Checked:
    mesh = jax.tree.leaves(tree)[0].sharding.mesh
    replicated = NamedSharding(mesh, PartitionSpec())
    sums = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), jnp.uint32, sharding=replicated), tree)
    return _Checked(tree, sums)


def _renamed(tree: Any, pairs: Mapping[str, str]) -> Any:
    """The tree, in whose dicts the paths of `pairs` are renamed, also in those of an optimizer."""
    if not isinstance(tree, dict):
        return jax.tree.map(
            lambda each: _renamed(each, pairs) if isinstance(each, dict) else each,
            tree,
            is_leaf=lambda each: isinstance(each, dict),
        )
    now = {}
    for keys, leaf in flatten_dict(tree, keep_empty_nodes=True).items():
        path = "/".join(map(str, keys))
        if (other := renamed(path, pairs)) != path:
            same = {str(key): key for key in keys}  # a key may be a number
            keys = tuple(same.get(name, name) for name in other.split("/"))
        now[keys] = leaf if leaf is empty_node else _renamed(leaf, pairs)
    return unflatten_dict(now)


def _sealed(metadata: dict[str, Any]) -> dict[str, str]:
    text = json.dumps(metadata)
    return {"json": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _unsealed(sealed: dict[str, str]) -> dict[str, Any]:
    if hashlib.sha256(sealed["json"].encode()).hexdigest() != sealed["sha256"]:
        raise ValueError("checksum of the metadata differs")
    return json.loads(sealed["json"])


def saved_steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in a folder, ascending; [] if the folder does not exist."""
    if not directory.is_dir():
        return []
    return sorted(int(each.name) for each in directory.iterdir() if each.name.isdecimal())


def newest_metadata(directory: Path) -> dict[str, Any]:
    """The newest metadata that is not damaged, or {}; reads no array, and waits for no process."""
    for step in reversed(saved_steps(directory)):
        with contextlib.suppress(Exception):  # `Checkpoints.restore` reports the damage
            return _unsealed(_metadata(directory, step).custom_metadata)
    return {}


def _metadata(directory: Path, step: int, *name: str) -> Any:
    """Describes a checkpoint; `metadata` of it is the tree `name`, or any one."""
    path = directory / str(step)
    return ocp.metadata(path if in_bucket(path) else path.absolute(), *name)


class _KeepWhole:
    """A retention policy that applies to all checkpoints that are not known to be damaged."""

    def __init__(self, policy: Any, damaged: set[int]):
        self._policy, self._damaged = policy, damaged

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        undamaged = [each for each in checkpoints if each.step not in self._damaged]
        kept = self._policy.should_preserve(undamaged, context=context)
        steps = {each.step for each, keep in zip(undamaged, kept, strict=True) if keep}
        return [each.step in steps for each in checkpoints]


def _anywhere(condition: bool) -> bool:
    if jax.process_count() == 1:
        return condition
    return bool(multihost_utils.process_allgather(np.array(condition)).any())


class Checkpoints:
    """The checkpoints of one run, in `directory`, which may be in a bucket.

    Args:
      keep: how many of the newest whole checkpoints to keep; older and damaged ones are deleted.
      keep_every: besides these, checkpoints whose step is a multiple of this are kept; 0 for none.
      read_only: whether to leave temporary files of other saves in the folder.
      renames: how paths of arrays were renamed (`bertjax.base.renames`); a checkpoint with the
        earlier paths is restored with those of now.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep: int,
        keep_every: int = 0,
        read_only: bool = False,
        renames: Mapping[str, str] | None = None,
    ):
        policies = [ocp.training.preservation_policies.LatestN(keep)]
        if keep_every:
            policies.append(ocp.training.preservation_policies.EveryNSteps(keep_every))
        check_folder_name(directory)
        self._directory = directory
        self._damaged: set[int] = set()
        self._renames = renames or {}
        any_of_them = ocp.training.preservation_policies.AnyPreservationPolicy(policies)
        context = ocp.Context()
        context.asynchronous.post_finalization_callback = self._to_disk
        self._checkpointer = ocp.training.Checkpointer(
            directory if in_bucket(directory) else directory.absolute(),
            context=context,
            preservation_policy=_KeepWhole(any_of_them, self._damaged),
            cleanup_tmp_directories=not read_only,
        )
        self._checksums = jax.jit(_checksums)

    def save(self, step: int, trees: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Starts saving in the background; returns when the arrays are copied from the devices.

        A checkpoint gets its name only when it is complete and on the disk; then older ones are
        deleted. In a bucket, the object commit_success.txt marks a complete checkpoint instead.
        `metadata` is a JSON object; of `trees`, each can be restored without the others.
        """
        self._damaged.discard(step)
        sealed = {
            name: _Checked(tree, self._checksums(tree))._asdict() for name, tree in trees.items()
        }
        with self._system_errors():
            self._checkpointer.save_checkpointables_async(
                step, sealed, custom_metadata=_sealed(metadata), overwrite=True, force=True
            )

    def _to_disk(self) -> None:
        """Flushes a save to the disk; Orbax calls it before the checkpoint gets its name."""
        if not in_bucket(self._directory):
            for folder in self._directory.iterdir():
                if not folder.name.isdecimal():
                    tree_to_disk(folder)

    def restore(
        self, abstract: dict[str, Any], only: int | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Restores trees and metadata of the newest complete checkpoint; None if none exists.

        A checkpoint with a missing or damaged file is skipped with a warning; if all are damaged,
        this raises InputError. `only` is the step of the only checkpoint to try. `abstract` has the
        shapes, dtypes and shardings; the shardings may differ from those that were saved.
        """
        steps = [each.step for each in self._checkpointer.checkpoints if only in (None, each.step)]
        targets = {name: _abstract(tree)._asdict() for name, tree in abstract.items()}
        for step in sorted(steps, reverse=True):
            self._check_access(step)
            loaded, metadata, damage = self._try_load(step, targets)
            # All processes must use the same checkpoint: if one cannot read it, none uses it.
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
            self._damaged.add(step)
        if steps:
            raise InputError(
                f"{self._directory}: all checkpoints {sorted(steps)} are damaged: restore "
                "one from a copy, or begin again in another --workdir"
            )
        return None

    def _check_access(self, step: int) -> None:
        """Raises InputError on all processes if one of them has no permission to read."""
        folder, closed = self._directory / str(step), None
        if not in_bucket(folder):  # a bucket raises its own error
            paths = (folder, *folder.rglob("*"))
            closed = next((path for path in paths if not os.access(path, os.R_OK)), None)
        if _anywhere(closed is not None):
            raise InputError(
                f"{closed or folder}: {'you have' if closed else 'another process has'} no "
                f"permission to read it, so checkpoint {step} cannot be checked: run "
                f"chmod -R u+rX {folder}, or run as the user who owns it"
            )

    def _try_load(self, step: int, targets: dict[str, Any]) -> tuple[Any, Any, str]:
        """The saved trees, their metadata and ""; or None, None and a description of the damage."""
        try:
            with bucket_errors(self._directory):
                saved = _metadata(self._directory, step, next(iter(targets)))
                metadata = _unsealed(saved.custom_metadata)
                return self._load(step, targets, saved.metadata), metadata, ""
        except (InputError, MemoryError, PermissionError, jax.errors.JaxRuntimeError):
            raise  # the checkpoint is not damaged
        except Exception as error:  # Orbax and TensorStore raise many kinds for a damaged file
            cause: BaseException = error
            while cause.__cause__:
                cause = cause.__cause__
            reason = " ".join(str(cause).split())[:300]
            return None, None, f"{type(cause).__name__}: {reason}"

    def _load(self, step: int, targets: dict[str, Any], saved: Any) -> Any:
        """The saved trees; where `saved`, one of them, has earlier paths, renamed."""
        if saved == _renamed(saved, self._renames):
            return self._checkpointer.load_checkpointables(step, targets)
        earlier = _renamed(targets, reverse(self._renames))
        return _renamed(self._checkpointer.load_checkpointables(step, earlier), self._renames)

    def _wrong_checksums(self, loaded: dict[str, Any]) -> str:
        """Names the arrays whose checksums are wrong; "" if all are right."""
        wrong = []
        for each in loaded.values():
            found = jax.device_get(self._checksums(each["tree"]))
            same = jax.tree.map(np.array_equal, jax.device_get(each["checksums"]), found)
            wrong += [
                jax.tree_util.keystr(path)
                for path, equal in jax.tree.leaves_with_path(same)
                if not equal
            ]
        return f"checksums differ: {', '.join(wrong[:3])}" if wrong else ""

    @contextlib.contextmanager
    def _system_errors(self) -> Iterator[None]:
        """Converts TensorStore's error of a failed write (such as a full disk) to an `OSError`."""
        try:
            with bucket_errors(self._directory):
                yield
        except Exception as error:
            code = re.search(r"os_error_code='(\d+)'", str(error))
            if code is None:
                raise
            number = int(code[1])
            raise OSError(number, os.strerror(number), str(self._directory)) from error

    def wait(self) -> None:
        """Waits until the current save is complete."""
        with self._system_errors():
            self._checkpointer.wait()

    def close(self) -> None:
        """Waits for the last save, and closes the manager."""
        with self._system_errors():
            self._checkpointer.close()
