"""What a device could do at best, and what a CPU needs to come nearer to it."""

import ctypes
import importlib.util
import logging
import os
import threading
import time
from pathlib import Path

import jax

_log = logging.getLogger(__name__)

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

# Of malloc.h; and the share of the machine's memory that a process may hold and still keep more.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_KEPT_SHARE = 1 / 3


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

    Steps of several lengths each keep memory of their own; when the process has a third of the
    machine's, what is free goes back to the system, and from then on as by default.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and _computes_on_cpu():
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, -1)
        most = _memory_of_the_machine() * _KEPT_SHARE
        threading.Thread(target=_give_back_above, args=(libc, most), daemon=True).start()


def _give_back_above(libc: ctypes.CDLL, most: float) -> None:
    """Waits until the process has that many bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    while int(Path("/proc/self/statm").read_text().split()[1]) * page < most:
        time.sleep(0.2)
    # What glibc comes to by itself where large pieces are freed.
    libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
    libc.mallopt(_TRIM_THRESHOLD, 64 << 20)
    libc.mallopt(_MMAP_MAX, 65536)
    libc.malloc_trim(0)
    _log.info("More than %.1f GiB in use: freed memory is not kept any more", most / 2**30)


def _memory_of_the_machine() -> float:
    """Bytes; those of the container, if it has a limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return memory if text == "max" else min(memory, int(text))


def _computes_on_cpu() -> bool:
    """Told without making the devices."""
    if jax.config.jax_platforms:
        return jax.config.jax_platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
