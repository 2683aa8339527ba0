"""Descriptions of TPU slices: their chips, and libtpu's devices, for which a step is compiled."""

import dataclasses
import importlib.util
import re

import jax

from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.base.no_tpu import tell_libtpu
from bertjax.compile_report import bundles
from bertjax.training.hardware import peak_flops

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """One generation of TPUs.

    Attributes:
      name: its name in a topology, such as "v5e" in "v5e:4x4".
      clock: the frequency of the compiler's cycles in Hz: peak FLOP/s / (2 x multipliers of all
        matrix units).
      links, hbm: the published bytes per second of one chip, over all its links and of its HBM.
      memory: the bytes of one device's HBM that a program can use.
      devices: the JAX devices of a chip.
      dimensions: those of the network; the size of a slice is "4x4" or "4x4x4".
    """

    name: str
    clock: float
    links: float
    hbm: float
    memory: float
    devices: int = 1
    dimensions: int = 2
    options: tuple[tuple[str, str], ...] = ()


_MEGACORE = (("chip_config_name", "megacore"),)
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v2", 0.70e9, 248e9, 700e9, 7.48 * GIB, devices=2),
        Chip("v3", 0.94e9, 328e9, 900e9, 15.48 * GIB, devices=2),
        Chip("v4", 1.05e9, 300e9, 1228e9, 30.75 * GIB, dimensions=3, options=_MEGACORE),
        Chip("v5e", 1.50e9, 200e9, 819e9, 15.75 * GIB),
        Chip("v5p", 1.75e9, 600e9, 2765e9, 95.74 * GIB, dimensions=3, options=_MEGACORE),
        Chip("v6e", 1.75e9, 448e9, 1640e9, 31.25 * GIB),
    )
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice of a pod.

    Attributes:
      chips: the number of its chips.
      devices: its JAX devices; a program can be compiled for them, but not run.
      peak: the dense bfloat16 FLOP/s of one chip.
    """

    name: str
    chip: Chip
    chips: int
    devices: list[jax.Device]

    @property
    def peak(self) -> float:
        peak = peak_flops(self.devices[0].device_kind)
        assert peak is not None  # it is known of all `CHIPS`
        return self.chip.devices * peak

    @property
    def device_hbm(self) -> float:
        """The published bytes per second of the HBM of one device."""
        return self.chip.hbm / self.chip.devices


def only_compile() -> None:
    """Lets JAX compile for described devices: also on a host with TPUs, it uses the CPU."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)  # it cannot read such programs back


def describe(name: str) -> Slice:
    """The slice of that name, such as "v5e:4x4"; InputError if it is unknown, or without libtpu."""
    generation, _, size = name.partition(":")
    chip = CHIPS.get(generation)
    if not chip or not re.fullmatch(rf"\d+(x\d+){{{chip.dimensions - 1}}}", size):
        known = ", ".join(f"{c.name}:{'x'.join('4' * c.dimensions)}" for c in CHIPS.values())
        raise InputError(f"--topology={name}: must be like one of {known}")
    if importlib.util.find_spec("libtpu") is None:
        raise InputError(f"the TPU compiler is not installed: {install('tpu')}")
    tell_libtpu()
    bundles.ask_libtpu()
    from jax.experimental import topologies

    options: dict[str, str | list[int]] = dict(chip.options)
    if size == "1x1":
        options["chips_per_host_bounds"] = [1, 1, 1]  # libtpu's default is a host with four chips
    try:
        found = topologies.get_topology_desc(topology_name=name, platform="tpu", **options)
    except Exception as error:  # JAX raises several types, with or without libtpu
        message = " ".join(str(error).split())[:300]
        raise InputError(f"--topology={name}: libtpu does not know it: {message}") from error
    devices = list(found.devices)
    return Slice(name, chip, len(devices) // chip.devices, devices)
