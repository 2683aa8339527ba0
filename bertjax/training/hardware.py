"""The peak performance of devices."""

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


def peak_flops(device_kind: str) -> float | None:
    """The peak FLOP/s of one device; None if it is not known, as for a CPU."""
    for start, peak in _PEAK.items():
        if device_kind.startswith(start):
            return peak
    return None
