"""Shows how a config splits a model over the devices: a table of its parameters, and pictures."""

import dataclasses
import re
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.runs.assembly import make_experiment
from bertjax.runs.recipe import Recipe
from bertjax.training.sharding.placement import Placement

_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class ShardingRow:
    """Parameters with the same role, shape and sharding; those of all layers are one row.

    Attributes:
      path: the path in the tree of parameters, with `*` for the number of the layer.
      logical: the names of `bertjax.base.axes`, one for each dimension.
      mesh_axes: the mesh axis that splits each dimension during a step; None means not split.
      stored: the same between steps, and for the optimizer's state.
      device_bytes: the bytes that a device stores of all of them.
    """

    path: str
    count: int
    shape: tuple[int, ...]
    logical: tuple[str, ...]
    mesh_axes: tuple[str | None, ...]
    stored: tuple[str | None, ...]
    device_bytes: int


def run(config: Any) -> list[ShardingRow]:
    """Prints the sharding of all parameters, and draws it; it computes and reads nothing.

    The vocabulary has config.model.vocab_size pieces, or those of the paper. Returns the rows of
    the table; raises InputError if the config has an error, or does not fit the devices.
    """
    recipe = Recipe.from_config(config)
    if recipe.sources:
        raise InputError("config.init_from: this program does not read weights: leave it empty")
    experiment = make_experiment(recipe, recipe.spec())
    placement, state = experiment.placement, experiment.state
    for phase in recipe.phases:
        placement.check(phase.batch_size // phase.accumulate, phase.length)
    rows = parameter_rows(experiment.abstract_params, placement)

    mesh = ", ".join(f"{axis}={size}" for axis, size in placement.mesh.shape.items())
    device = placement.mesh.devices.flat[0].device_kind
    print(f"layout {recipe.layout!r} on {placement.mesh.size} x {device}: {mesh}\n")
    _print_table(rows)
    average = (("average of the parameters", state.average),) if state.average else ()
    trees = (("parameters", state.params), ("optimizer state", state.opt_state), *average)
    for name, tree in trees:
        leaves = jax.tree.leaves(tree)
        here = sum(_device_bytes(leaf, leaf.sharding) for leaf in leaves)
        total = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        print(f"{name}: {total / _MIB:,.1f} MiB, of which a device holds {here / _MIB:,.1f}")
    _draw(recipe, placement, rows)
    return rows


def parameter_rows(boxed: Any, placement: Placement) -> list[ShardingRow]:
    """The rows of the table, by an abstract tree of parameters with their logical axes."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
    )
    found: dict[str, ShardingRow] = {}
    used, stored = (
        jax.tree.leaves(placement.shardings(boxed, stored=where)) for where in (False, True)
    )
    for (path, leaf), sharding, share in zip(leaves, used, stored, strict=True):
        key = jax.tree_util.keystr(path, simple=True, separator="/")
        name = re.sub(r"layer_\d+/", "layer_*/", key)
        before = found.get(name)
        found[name] = ShardingRow(
            name,
            before.count + 1 if before else 1,
            leaf.value.shape,
            leaf.names,
            _mesh_axes(sharding, leaf.value.ndim),
            _mesh_axes(share, leaf.value.ndim),
            (before.device_bytes if before else 0) + _device_bytes(leaf.value, share),
        )
    return list(found.values())


def _mesh_axes(sharding: NamedSharding, dimensions: int) -> tuple[str | None, ...]:
    return (*sharding.spec, *[None] * dimensions)[:dimensions]


def _device_bytes(leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> int:
    return int(np.prod(sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize


def _print_table(rows: list[ShardingRow]) -> None:
    titles = ("parameter", "", "shape", "logical axes", "in use", "stored")
    cells = [(*titles, "bytes a device")]
    for row in rows:
        cells.append(
            (
                row.path,
                f"x{row.count}" if row.count > 1 else "",
                " x ".join(f"{size:,}" for size in row.shape),
                ", ".join(row.logical),
                ", ".join(axis or "-" for axis in row.mesh_axes),
                ", ".join(axis or "-" for axis in row.stored),
                f"{row.device_bytes:,}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        *left, right = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join([*left, right.strip().rjust(widths[-1])]))
    print()


def _draw(recipe: Recipe, placement: Placement, rows: list[ShardingRow]) -> None:
    """Draws which device holds which slice of the batch, and of each kind of split matrix."""
    phase = recipe.phases[0]
    batch = phase.batch_size // phase.accumulate, phase.length
    pictures: dict[str, tuple[tuple[int, ...], tuple[str, ...], NamedSharding]]
    pictures = {"a batch": (batch, (axes.BATCH, axes.LENGTH), placement.batch)}
    splits = set()
    for row in rows:
        if len(row.shape) == 2 and any(row.mesh_axes) and row.mesh_axes not in splits:
            splits.add(row.mesh_axes)
            sharding = NamedSharding(placement.mesh, PartitionSpec(*row.mesh_axes))
            pictures[row.path] = row.shape, row.logical, sharding
    for name, (shape, logical, sharding) in pictures.items():
        sizes = " x ".join(f"{axis} {size:,}" for axis, size in zip(logical, shape, strict=True))
        print(f"\n{name}: {sizes}")
        array = jax.device_put(np.zeros(shape, np.int8), sharding)
        jax.debug.visualize_array_sharding(array, use_color=False)
