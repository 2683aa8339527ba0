"""The devices as a grid: the axis `data` splits the batch, `model` splits matrix products."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

import jax
from jax.sharding import AxisType, Mesh

from bertjax.base.errors import InputError
from bertjax.base.limits import Count, Meta

DATA, MODEL = "data", "model"


@dataclasses.dataclass(frozen=True)
class MeshSpec:
    """The number of devices of each mesh axis.

    Attributes:
      data: over so many a batch is split; -1: all that remain.
      model: over so many matrix products are split.
    """

    data: Annotated[int, Meta(ge=-1)] = -1
    model: Count = 1


def make_mesh(spec: MeshSpec, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices`, by default all of the job, in an order that suits the network."""
    devices = jax.devices() if devices is None else devices
    data = len(devices) // max(spec.model, 1) if spec.data == -1 else spec.data
    if data < 1 or math.prod((data, spec.model)) != len(devices):
        raise InputError(
            f"mesh data={spec.data}, model={spec.model} does not fit {len(devices)} devices: "
            "the product of the sizes must be that number (data=-1 takes the remaining devices)"
        )
    return jax.make_mesh(
        (data, spec.model), (DATA, MODEL), axis_types=(AxisType.Auto,) * 2, devices=devices
    )
