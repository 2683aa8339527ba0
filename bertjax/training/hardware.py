"""What devices can do: their peak performance, and the dtypes in which they multiply."""

from pathlib import Path

import jax

AUTO = "auto"  # a compute_dtype: `compute_dtype` of the device

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

_CPU_INFO = Path("/proc/cpuinfo")


def peak_flops(device_kind: str) -> float | None:
    """The peak FLOP/s of one device; None if it is not known, as for a CPU."""
    for start, peak in _PEAK.items():
        if device_kind.startswith(start):
            return peak
    return None


def compute_dtype(device: jax.Device) -> str:
    """bfloat16 on TPUs, and on GPUs of compute capability 8.0 or newer; else float32."""
    if device.platform == "gpu":
        major = str(getattr(device, "compute_capability", "")).partition(".")[0]
        return "bfloat16" if major.isdecimal() and int(major) >= 8 else "float32"
    return "bfloat16" if device.platform == "tpu" else "float32"


def resolved(dtype: str, device: jax.Device) -> str:
    """A compute_dtype, which is that of the device if it is "auto"."""
    return compute_dtype(device) if dtype == AUTO else dtype


def dtype_in_words(dtype: str, device: jax.Device) -> str:
    """How a run announces its compute_dtype, with a warning where another one is faster.

    A GPU without units for bfloat16 computes such products in float32
    (https://github.com/jax-ml/jax/issues/21212), and so does a CPU.
    """
    text = f"computed in {dtype}"
    if dtype == "bfloat16" and not _multiplies_bfloat16(device):
        text += (
            f"\nwarning: {device.device_kind} has no units for bfloat16, and converts it to "
            "float32 and back: --config.model.compute_dtype=float32 is faster"
        )
    return text


def _multiplies_bfloat16(device: jax.Device) -> bool:
    """Whether the device has units for bfloat16; a CPU that Linux does not describe may have."""
    if device.platform != "cpu":
        return compute_dtype(device) == "bfloat16"
    # The flags of x86-64 are avx512_bf16 and amx_bf16; of Arm, bf16 and svebf16.
    return not _CPU_INFO.exists() or "bf16" in _CPU_INFO.read_text()
