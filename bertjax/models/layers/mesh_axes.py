"""The mesh axes over which the active layout splits an array."""

from collections.abc import Sequence

import jax
from flax import linen as nn
from jax.sharding import PartitionSpec


def mesh_axes(names: Sequence[str | None]) -> PartitionSpec | None:
    """The mesh axes of the dimensions with these logical axes (`bertjax.base.axes`).

    None if no mesh is set, as when parameters are initialized or a model is exported.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return None
    return nn.logical_to_mesh_axes(tuple(names))
