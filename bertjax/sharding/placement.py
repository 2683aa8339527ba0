"""Where each array lies: a mesh and a layout, applied."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bertjax import axes
from bertjax.errors import InputError
from bertjax.sharding.rules import Layout, partition_spec

HostBatch = Mapping[str, np.ndarray]


def inference_tokens(given: int | None) -> int:
    """Tokens that a device computes together where nothing is learned: `given`, or what suits it.

    More are slower on a CPU: their activations leave its caches.
    """
    return given or (512 if jax.default_backend() == "cpu" else 16_384)


def part_tokens() -> tuple[int, int]:
    """Where a batch is learned from in parts: the most tokens of a part on a device, and its cost.

    More tokens leave the caches of a CPU; elsewhere they may not fit into memory. The cost is that
    of adding the gradients of all parameters, as the tokens that would be computed meanwhile:
    estimated from what a device multiplies and what it moves in a second.
    """
    return (1_024, 64) if jax.default_backend() == "cpu" else (16_384, 640)


class Placement:
    """A mesh and a layout.

    Attributes:
      mesh: the devices.
      replicated: the sharding of what every device has whole.
      batch: the sharding of every array of a batch: rows split, the rest whole.
      ways: how many devices the rows are split over.
    """

    def __init__(self, mesh: Mesh, layout: Layout):
        self.mesh, self._rules, self._optimizer = mesh, layout.rules, layout.optimizer
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.batch = NamedSharding(mesh, partition_spec((axes.BATCH,), layout.rules))
        self.ways = mesh.shape[self.batch.spec[0]]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, the logical constraints of a model mean this mesh and this layout."""
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(list(self._rules.items())):
            yield

    def shardings(self, boxed: Any, *, of_optimizer: bool = False) -> Any:
        """Shardings of an abstract tree whose leaves are flax `LogicallyPartitioned`.

        Args:
          of_optimizer: where the optimizer's state lies for such parameters. There a dimension
            that does not divide stays whole.

        Returns:
          The tree without its boxes, each leaf a `NamedSharding`; leaves without axes (counters)
          are on every device.

        Raises:
          InputError: a dimension that does not divide over its mesh axis.
        """
        rules = self._optimizer if of_optimizer else self._rules

        def leaf_sharding(path, leaf):
            names = leaf.names if isinstance(leaf, nn.LogicallyPartitioned) else ()
            spec = list(partition_spec(names, rules))
            for i, (size, name) in enumerate(zip(nn.unbox(leaf).shape, names, strict=False)):
                axis = spec[i]
                ways = self.mesh.shape[axis] if axis else 1
                if size % ways and of_optimizer:
                    spec[i] = None
                elif size % ways:
                    cure = "set config.model.vocab_multiple, or choose"
                    cure = cure if name == axes.VOCAB else "choose"
                    raise InputError(
                        f"parameter {jax.tree_util.keystr(path)}: {name} = {size} does not divide "
                        f"over the {ways} devices of mesh axis {axis!r}: {cure} another "
                        "config.layout or config.mesh"
                    )
            return NamedSharding(self.mesh, PartitionSpec(*spec))

        return jax.tree_util.tree_map_with_path(
            leaf_sharding, boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
        )

    def host_rows(self, batch_size: int) -> slice:
        """The rows of a batch that this process's devices hold.

        Raises:
          InputError: a batch that does not divide over the devices.
        """
        try:
            shards = self.batch.devices_indices_map((batch_size,))
        except ValueError as error:
            raise InputError(
                f"a batch of {batch_size} sequences does not divide over {self.ways} devices: make "
                f"batch_size / accumulate (and eval_batch_size, if any) multiples of {self.ways}"
            ) from error
        here = [
            rows.indices(batch_size)
            for device, (rows,) in shards.items()
            if device.process_index == jax.process_index()
        ]
        return slice(min(r[0] for r in here), max(r[1] for r in here))

    def put(self, make: Callable[[slice], HostBatch], batch_size: int) -> dict[str, jax.Array]:
        """Global arrays of `batch_size` rows, of which this process makes those it holds.

        Args:
          make: rows -> those rows of the batch.
        """
        held = self.host_rows(batch_size)

        def put(array: np.ndarray) -> jax.Array:
            def piece(index):
                start, stop, _ = index[0].indices(batch_size)
                return array[start - held.start : stop - held.start]

            shape = (batch_size, *array.shape[1:])
            return jax.make_array_from_callback(shape, self.batch, piece)

        return {name: put(array) for name, array in make(held).items()}
