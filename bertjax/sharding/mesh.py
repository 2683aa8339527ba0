"""The devices as a grid: `data` splits the batch, `model` splits single products."""

import dataclasses
import math

import jax
from jax.sharding import AxisType, Mesh

from bertjax.errors import InputError

DATA, MODEL = "data", "model"


@dataclasses.dataclass(frozen=True)
class MeshSpec:
    """How many devices each mesh axis has; -1 in `data` means all that are left."""

    data: int = -1
    model: int = 1


def make_mesh(spec: MeshSpec, devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (all of the job's by default), in the order that suits the network.

    Raises:
      InputError: sizes that do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    data = len(devices) // max(spec.model, 1) if spec.data == -1 else spec.data
    if data < 1 or math.prod((data, spec.model)) != len(devices):
        raise InputError(
            f"mesh data={spec.data}, model={spec.model} does not fit {len(devices)} devices: "
            "the sizes must multiply to that number (data=-1 takes what is left)"
        )
    return jax.make_mesh(
        (data, spec.model), (DATA, MODEL), axis_types=(AxisType.Auto,) * 2, devices=devices
    )
