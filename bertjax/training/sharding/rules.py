"""Sharding layouts: tables from logical axes (`bertjax.base.axes`) to mesh axes; None: no split."""

import dataclasses
from collections.abc import Mapping, Sequence

from jax.sharding import PartitionSpec

from bertjax.base import axes
from bertjax.base.checks import check_choice
from bertjax.training.sharding.mesh import DATA, MODEL

Rules = Mapping[str, str | None]

_DATA: Rules = {**dict.fromkeys(axes.ALL), axes.BATCH: DATA}
_VOCABULARY: Rules = {axes.VOCAB: MODEL, axes.ACTIVATION_VOCAB: MODEL}
_SEQUENCE: Rules = {axes.LENGTH: MODEL, **_VOCABULARY}
_FSDP: Rules = {axes.EMBED: DATA}
_TENSOR: Rules = {
    axes.HEADS: MODEL,
    axes.KV_HEADS: MODEL,
    axes.ACTIVATION_HEADS: MODEL,
    axes.MLP: MODEL,
    axes.ACTIVATION_MLP: MODEL,
    **_VOCABULARY,
}


# Along these axes, a share is a number of whole rows of a matrix or of its transpose.
_SHARES = (axes.MLP, axes.VOCAB, axes.POSITIONS, axes.EMBED_OUT, axes.EMBED)


@dataclasses.dataclass(frozen=True)
class ShardingLayout:
    """How arrays are split over a mesh.

    Attributes:
      rules: the table for activations, and for parameters while a step uses them.
      shares: the axes along which a parameter, its moments and its average are split while they are
        stored and updated, over the devices that split the rows of a batch. The first of these axes
        that the parameter has and that `rules` does not split is used. Vectors are not split.
    """

    rules: Rules
    shares: tuple[str, ...] = ()


def _merged_rules(*tables: Rules) -> Rules:
    return {name: axis for table in (_DATA, *tables) for name, axis in table.items()}


LAYOUTS: Mapping[str, ShardingLayout] = {
    # The batch. Every device has the whole model.
    "data": ShardingLayout(_DATA),
    # The batch, and the stored parameters with the optimizer's state and its work (ZeRO-1, arXiv
    # 1910.02054). Each step gathers the parameters. The configs for pods have this layout.
    "zero1": ShardingLayout(_DATA, _SHARES),
    # As with `zero1`, but each product gathers its own parameters.
    "fsdp": ShardingLayout(_merged_rules(_FSDP)),
    # The batch, and over `config.mesh.model` devices heads, feed-forward layers and the vocabulary
    # (Megatron-LM, arXiv 1909.08053).
    "tensor": ShardingLayout(_merged_rules(_TENSOR)),
    # As with `tensor`, and the rest as with `zero1`.
    "tensor_zero1": ShardingLayout(_merged_rules(_TENSOR), _SHARES),
    # As with `zero1`, and over `config.mesh.model` devices the tokens of each sequence, for lengths
    # that do not fit into one device's memory, and the vocabulary.
    "sequence": ShardingLayout(_merged_rules(_SEQUENCE), _SHARES),
    # As with `tensor`, and the rest as with `fsdp`.
    "tensor_fsdp": ShardingLayout(_merged_rules(_TENSOR, _FSDP)),
}


def sharding_layout(name: str) -> ShardingLayout:
    """The sharding layout of that name; InputError if there is none."""
    check_choice("layout", name, LAYOUTS)
    return LAYOUTS[name]


def partition_spec(logical: Sequence[str | None], rules: Rules) -> PartitionSpec:
    """The mesh axes of an array with these logical axes; each may split only one dimension."""
    mesh_axes = []
    for name in logical:
        if name is not None and name not in rules:
            raise ValueError(f"unknown logical axis {name!r} in {tuple(logical)}")
        mesh_axes.append(None if name is None else rules[name])
    used = [axis for axis in mesh_axes if axis is not None]
    if len(used) != len(set(used)):
        raise ValueError(f"one mesh axis on two dimensions: {tuple(logical)} -> {mesh_axes}")
    return PartitionSpec(*mesh_axes)
