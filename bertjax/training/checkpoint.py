"""Checkpoints: everything that must agree, saved together, restored anywhere."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as ocp

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


class Checkpoints:
    """The checkpoints of one run, in `directory`.

    Args:
      directory: made if it is not there.
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
            directory.absolute(),
            preservation_policy=ocp.training.preservation_policies.AnyPreservationPolicy(policies),
            cleanup_tmp_directories=not read_only,
        )
        self._checksums = jax.jit(_checksums)

    def save(self, step: int, parts: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Starts saving in the background; returns when the arrays have left the devices.

        A checkpoint appears under its name when it is whole, never before.

        Args:
          parts: name -> tree of arrays; what may be restored without the others is a part.
          metadata: JSON.
        """
        self._checkpointer.save_checkpointables_async(
            step,
            {name: _Part(tree, self._checksums(tree))._asdict() for name, tree in parts.items()},
            custom_metadata=metadata,
            overwrite=True,
            force=True,
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
        for step in sorted(steps, reverse=True):
            try:
                parts = self._load(step, abstract)
                return parts, self._checkpointer.metadata(step).custom_metadata
            except Exception as error:  # Orbax and TensorStore raise many kinds for a damaged file
                _log.warning(
                    "checkpoint %s is damaged (%s: %s); trying the one before it",
                    self._directory / str(step),
                    type(error).__name__,
                    str(error).strip().splitlines()[0][:300],
                )
        if steps:
            raise InputError(
                f"{self._directory}: none of the checkpoints {sorted(steps)} is whole: restore "
                "one from a copy, or delete the run's folder to begin again"
            )
        return None

    def _load(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        targets = {name: _abstract_part(tree)._asdict() for name, tree in abstract.items()}
        loaded = self._checkpointer.load_checkpointables(step, targets)
        parts = {}
        for name in abstract:
            part = _Part(**loaded[name])
            found = jax.device_get(self._checksums(part.tree))
            same = jax.tree.map(np.array_equal, jax.device_get(part.checksums), found)
            wrong = [jax.tree_util.keystr(p) for p, ok in jax.tree.leaves_with_path(same) if not ok]
            if wrong:
                raise ValueError(f"checksums of {name} differ: {', '.join(wrong[:3])}")
            parts[name] = part.tree
        return parts

    def close(self) -> None:
        """Waits for the last save."""
        self._checkpointer.close()
