"""Layouts: tables from logical axis (`bertjax.axes`) to mesh axis. None: not split."""

from collections.abc import Mapping, Sequence

from jax.sharding import PartitionSpec

from bertjax import axes
from bertjax.errors import InputError
from bertjax.sharding.mesh import DATA, MODEL

Rules = Mapping[str, str | None]

_WHOLE: Rules = dict.fromkeys(axes.ALL)

LAYOUTS: Mapping[str, Rules] = {
    # Every device has the whole model; the batch is split.
    "data": {**_WHOLE, axes.BATCH: DATA},
    # The batch is split, and so are parameters and optimizer state, over the same devices.
    "fsdp": {**_WHOLE, axes.BATCH: DATA, axes.EMBED: DATA},
    # Heads, feed-forward and vocabulary are split too (Megatron-LM, arXiv 1909.08053).
    "tensor": {
        **_WHOLE,
        axes.BATCH: DATA,
        axes.HEADS: MODEL,
        axes.ACTIVATION_HEADS: MODEL,
        axes.MLP: MODEL,
        axes.ACTIVATION_MLP: MODEL,
        axes.VOCAB: MODEL,
        axes.ACTIVATION_VOCAB: MODEL,
    },
}


def layout(name: str) -> Rules:
    """A table by its name.

    Raises:
      InputError: no such layout.
    """
    if name not in LAYOUTS:
        raise InputError(f"layout={name!r}: must be one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def partition_spec(logical: Sequence[str | None], rules: Rules) -> PartitionSpec:
    """The mesh axes of an array whose dimensions have these logical axes.

    Raises:
      ValueError: an unknown logical axis, or one mesh axis on two dimensions.
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
