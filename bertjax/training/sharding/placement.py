"""Places arrays on devices, by a mesh and a layout."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.training.sharding.mesh import DATA, MODEL, MeshSpec, make_mesh
from bertjax.training.sharding.rules import ShardingLayout, partition_spec, sharding_layout

HostBatch = Mapping[str, np.ndarray]


def inference_tokens(tokens: int | None) -> int:
    """The tokens that a device computes together in inference: `tokens`, or the device's default.

    On a CPU, more tokens are slower, because their activations do not fit into its caches.
    """
    return tokens or (512 if jax.default_backend() == "cpu" else 16_384)


def microbatch_tokens() -> tuple[int, int]:
    """The most tokens of a microbatch of training on a device, and its fixed cost.

    More tokens do not fit into the caches of a CPU, or into the memory of another device. The cost
    is the time to add the gradients of all parameters, in tokens that the device could compute in
    it, estimated from its FLOP/s and memory bandwidth.
    """
    return (1_024, 32) if jax.default_backend() == "cpu" else (16_384, 640)


class Placement:
    """A mesh and a layout, which determine the shardings of all arrays.

    Attributes:
      replicated: the sharding of an array that every device has completely.
      batch: the sharding of the arrays of a batch, which splits only the rows.
      ways: the number of devices that the rows are split over.
    """

    def __init__(self, mesh: Mesh, layout: ShardingLayout):
        self.mesh, self._layout = mesh, layout
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.batch = NamedSharding(mesh, partition_spec((axes.BATCH,), layout.rules))
        self.ways = mesh.shape[self.batch.spec[0]]
        (of_length,) = partition_spec((axes.LENGTH,), layout.rules)
        self._pieces = mesh.shape[of_length] if of_length else 1

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Applies this mesh and layout to the logical constraints of a model, inside the block."""
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(list(self._layout.rules.items())):
            yield

    def shardings(self, boxed: Any, *, stored: bool = False) -> Any:
        """The `NamedSharding`s of an abstract tree whose leaves are flax `LogicallyPartitioned`.

        They are those in which a step uses parameters; if `stored`, those in which parameters,
        moments and average are stored between steps. Leaves without axes (counters) are on every
        device. InputError: a dimension cannot be divided evenly over its mesh axis.
        """

        def leaf_sharding(path: jax.tree_util.KeyPath, leaf: Any) -> NamedSharding:
            boxed = isinstance(leaf, nn.LogicallyPartitioned)
            names, shape = (leaf.names, leaf.value.shape) if boxed else ((), leaf.shape)
            spec = list(partition_spec(names, self._layout.rules))
            for size, name, axis in zip(shape, names, spec, strict=False):
                ways = self.mesh.shape[axis] if axis else 1
                if size % ways:
                    hint = "set config.model.vocab_multiple, or choose"
                    hint = hint if name == axes.VOCAB else "choose"
                    raise InputError(
                        f"parameter {jax.tree_util.keystr(path)}: {name} = {size} does not divide "
                        f"over the {ways} devices of mesh axis {axis!r}: {hint} another "
                        "config.layout or config.mesh"
                    )
            if stored and (place := self._share(names, shape, spec)) is not None:
                spec[place] = DATA
            return NamedSharding(self.mesh, PartitionSpec(*spec))

        return jax.tree_util.tree_map_with_path(
            leaf_sharding, boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
        )

    def _share(
        self, names: Sequence[str | None], shape: Sequence[int], spec: Sequence[str | None]
    ) -> int | None:
        """The dimension along which the devices share a parameter; None: each has all of it."""
        if len(set(names) - {axes.LAYERS}) < 2:
            return None
        for name in self._layout.shares:
            place = names.index(name) if name in names else None
            if place is not None and not spec[place] and shape[place] % self.mesh.shape[DATA] == 0:
                return place
        return None

    def check(self, rows: int, length: int) -> None:
        """Raises InputError, with what to change, if a batch does not divide over the devices."""
        self.host_rows(rows)
        if length % self._pieces:
            raise InputError(
                f"sequences of {length} tokens do not divide over the {self._pieces} devices of "
                f"mesh axis {MODEL!r}, which split them: change the phase's length, or "
                "config.mesh.model"
            )

    def host_rows(self, batch_size: int) -> slice:
        """The rows of a batch that this process has; InputError if the batch does not divide."""
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
            if device.process_index == jax.process_index()  # type: ignore[attr-defined]
        ]
        return slice(min(r[0] for r in here), max(r[1] for r in here))

    def put(self, make: Callable[[slice], HostBatch], batch_size: int) -> dict[str, jax.Array]:
        """Makes global arrays of `batch_size` rows; each process makes only its own rows."""
        held = self.host_rows(batch_size)

        def put(array: np.ndarray) -> jax.Array:
            def piece(index: Any) -> np.ndarray:
                start, stop, _ = index[0].indices(batch_size)
                return array[start - held.start : stop - held.start]

            shape = (batch_size, *array.shape[1:])
            return jax.make_array_from_callback(shape, self.batch, piece)

        return {name: put(array) for name, array in make(held).items()}

    def zeros(
        self, shapes: Mapping[str, jax.ShapeDtypeStruct], batch_size: int
    ) -> dict[str, jax.Array]:
        """Global arrays of zeros of `batch_size` rows of these shapes."""
        return {
            name: jnp.zeros((batch_size, *each.shape), each.dtype, device=self.batch)
            for name, each in shapes.items()
        }

    def on_host(self, tree: Any) -> Any:
        """Whole arrays on the host, from arrays that the devices of all hosts share."""
        return jax.device_get(jax.device_put(tree, self.replicated))


def make_placement(
    mesh: MeshSpec, layout_name: str, devices: Sequence[jax.Device] | None = None
) -> Placement:
    """The placement of a config's mesh and layout, by default on all devices of the job."""
    return Placement(make_mesh(mesh, devices), sharding_layout(layout_name))


def data_parallel(devices: Sequence[jax.Device] | None = None) -> Placement:
    """The placement of inference: every device has all parameters, and some rows of each batch."""
    return make_placement(MeshSpec(), "data", devices)
