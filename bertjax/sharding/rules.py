"""Layouts: tables from logical axes (`bertjax.base.axes`) to mesh axes; None means not split."""

import dataclasses
from collections.abc import Mapping, Sequence

from jax.sharding import PartitionSpec

from bertjax.base import axes
from bertjax.base.errors import InputError
from bertjax.sharding.mesh import DATA, MODEL

Rules = Mapping[str, str | None]

_DATA: Rules = {**dict.fromkeys(axes.ALL), axes.BATCH: DATA}
_FSDP: Rules = {axes.EMBED: DATA}
_TENSOR: Rules = {
    axes.HEADS: MODEL,
    axes.ACTIVATION_HEADS: MODEL,
    axes.MLP: MODEL,
    axes.ACTIVATION_MLP: MODEL,
    axes.VOCAB: MODEL,
    axes.ACTIVATION_VOCAB: MODEL,
}


# These dimensions are neither the fastest nor the slowest of a product on a TPU.
_SPREAD: Rules = dict.fromkeys(
    (axes.HEAD_WIDTH, axes.MLP, axes.VOCAB, axes.POSITIONS, axes.EMBED_OUT), DATA
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Two tables, which say how arrays are split.

    Attributes:
      rules: the table of parameters and activations.
      optimizer: the table of the optimizer's state; the update is computed in the same way.
    """

    rules: Rules
    optimizer: Rules


def _all(*tables: Rules) -> Rules:
    return {name: axis for table in (_DATA, *tables) for name, axis in table.items()}


LAYOUTS: Mapping[str, Layout] = {
    # Every device has the whole model; the batch is split.
    "data": Layout(_DATA, _DATA),
    # The same, but each device updates a share of the parameters ("ZeRO-1", arXiv 1910.02054).
    "zero1": Layout(_DATA, _all(_SPREAD)),
    # The batch is split, and so are parameters and optimizer state, over the same devices.
    "fsdp": Layout(_all(_FSDP), _all(_FSDP)),
    # Heads, feed-forward and vocabulary are split too (Megatron-LM, arXiv 1909.08053).
    "tensor": Layout(_all(_TENSOR), _all(_TENSOR)),
    "tensor_zero1": Layout(_all(_TENSOR), _all(_TENSOR, _FSDP)),
    "tensor_fsdp": Layout(_all(_TENSOR, _FSDP), _all(_TENSOR, _FSDP)),
}


def layout(name: str) -> Layout:
    """The layout of that name.

    Raises:
      InputError: the name is unknown.
    """
    if name not in LAYOUTS:
        raise InputError(f"layout={name!r}: must be one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def partition_spec(logical: Sequence[str | None], rules: Rules) -> PartitionSpec:
    """The mesh axes of an array whose dimensions have these logical axes.

    Raises:
      ValueError: a logical axis is unknown, or a mesh axis splits two dimensions.
    """
    mesh_axes = []
    for name in logical:
        if name is not None and name not in rules:
            raise ValueError(f"unknown logical axis {name!r} in {tuple(logical)}")
        mesh_axes.append(None if name is None else rules[name])
    used = [axis for axis in mesh_axes if axis is not None]
    if len(used) != len(set(used)):
        raise ValueError(f"one mesh axis on two dimensions: {tuple(logical)} -> {mesh_axes}")
    return PartitionSpec(*mesh_axes)
