"""The peak performance of devices, and a memory setting that makes training on a CPU faster."""

import ctypes
import importlib.util
import logging
import os
import threading
import time
from pathlib import Path

import jax

_log = logging.getLogger(__name__)

# The dense bfloat16 peak of one JAX device in FLOP/s, by the start of its `device_kind`. A device
# of TPU v2 or v3 is one core, which is half a chip.
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

# Constants of malloc.h, and the share of the machine's memory above which freed memory is given
# back.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_KEPT_SHARE = 1 / 3


def peak_flops(device_kind: str) -> float | None:
    """The peak FLOP/s of one device; None if it is not known, as for a CPU."""
    for start, peak in _PEAK.items():
        if device_kind.startswith(start):
            return peak
    return None


def keep_freed_memory() -> None:
    """Makes glibc reuse the memory of one step for the next step, in training on a CPU.

    XLA allocates temporary arrays with malloc and frees them after each step. By default glibc
    returns large ones to the system, which then maps and clears every page again; that costs a
    sixth of a step's processor time. The function must be called before JAX makes its devices,
    because their threads would otherwise have separate memory pools with other settings. It does
    nothing with another C library, or if a package for accelerators is installed and JAX_PLATFORMS
    is not cpu.

    Steps of different lengths keep separate memory. When the process has a third of the machine's
    memory, free memory is returned to the system, and from then on the default settings hold.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and _computes_on_cpu():
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, -1)
        most = _memory_of_the_machine() * _KEPT_SHARE
        threading.Thread(target=_give_back_above, args=(libc, most), daemon=True).start()


def _give_back_above(libc: ctypes.CDLL, most: float) -> None:
    """Restores the default settings once the process has `most` bytes, and returns free memory.

    A step may be using the memory at that moment, so free memory is returned again, every two
    seconds in which the process still has `most` bytes.
    """
    _wait_for(most)
    # glibc reaches these values by itself after large pieces are freed.
    libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
    libc.mallopt(_TRIM_THRESHOLD, 64 << 20)
    libc.mallopt(_MMAP_MAX, 65536)
    _log.info("More than %.1f GiB in use: freed memory is not kept any more", most / 2**30)
    while True:
        libc.malloc_trim(0)
        time.sleep(2)
        _wait_for(most)


def _wait_for(most: float) -> None:
    """Returns when the process has `most` bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    while int(Path("/proc/self/statm").read_text().split()[1]) * page < most:
        time.sleep(0.2)


def _memory_of_the_machine() -> float:
    """The bytes of the machine's memory, or the container's limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return memory if text == "max" else min(memory, int(text))


def _computes_on_cpu() -> bool:
    """Whether JAX will use the CPU; it decides this without making the devices."""
    if jax.config.jax_platforms:
        return jax.config.jax_platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
