"""What a device could do at best, and what a CPU needs to come nearer to it."""

import ctypes
import importlib.util

import jax

# Dense bfloat16 peak of one JAX device, FLOP/s, by the start of its `device_kind`. A TPU v2 or
# v3 device is one core, half a chip.
_PEAK = {
    "NVIDIA H200": 989e12,
    "NVIDIA H100": 989e12,
    "NVIDIA A100": 312e12,
    "TPU v6": 918e12,
    "TPU v5p": 459e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v4": 275e12,
    "TPU v3": 61.5e12,
    "TPU v2": 22.5e12,
}


def peak_flops(device_kind: str) -> float | None:
    """FLOP/s of one device, or None where it is not known (a CPU, say)."""
    for start, peak in _PEAK.items():
        if device_kind.startswith(start):
            return peak
    return None


def keep_freed_memory() -> None:
    """Lets glibc reuse the memory of one step for the next; for training on a CPU.

    XLA takes its temporaries from malloc and gives them back after each step. By default large
    ones go back to the system, which then maps and clears every page again: a sixth of the
    processor time of a step. To be called before JAX makes its devices: their threads would
    otherwise have pools of their own, where this does not hold. Does nothing on other C libraries,
    or where a package for accelerators is installed, unless JAX_PLATFORMS=cpu.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt and _computes_on_cpu():
        arena_max, mmap_max, trim_threshold = -8, -4, -1
        for parameter, value in ((arena_max, 1), (mmap_max, 0), (trim_threshold, -1)):
            mallopt(parameter, value)


def _computes_on_cpu() -> bool:
    """Told without making the devices."""
    if jax.config.jax_platforms:
        return jax.config.jax_platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
