"""What devices can do."""

from types import SimpleNamespace

import pytest

from bertjax.training import hardware
from bertjax.training.hardware import compute_dtype, dtype_in_words, peak_flops, resolved


@pytest.mark.parametrize(
    "kind, peak",
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("TPU v5", 459e12),
        ("TPU v4", 275e12),
        ("cpu", None),
    ],
)
def test_peak_flops(kind, peak):
    assert peak_flops(kind) == peak


DEVICES = {  # the platform and compute capability, as JAX gives them
    "TPU v5 lite": ("tpu", None, "bfloat16"),
    "NVIDIA H100 80GB HBM3": ("gpu", "9.0", "bfloat16"),
    "NVIDIA A100-SXM4-80GB": ("gpu", "8.0", "bfloat16"),
    "NVIDIA GeForce RTX 3090": ("gpu", "8.6", "bfloat16"),
    "NVIDIA GeForce RTX 5090": ("gpu", "12.0", "bfloat16"),
    "Tesla T4": ("gpu", "7.5", "float32"),
    "Tesla V100-SXM2-16GB": ("gpu", "7.0", "float32"),
    "a GPU of another make": ("gpu", "gfx90a", "float32"),
    "cpu": ("cpu", None, "float32"),
}


@pytest.mark.parametrize("kind", DEVICES)
def test_dtype_of_products(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")  # of no CPU
    platform, capability, dtype = DEVICES[kind]
    device = SimpleNamespace(platform=platform, device_kind=kind)
    if capability:
        device.compute_capability = capability
    assert compute_dtype(device) == resolved("auto", device) == dtype
    for asked in ("float32", "bfloat16"):
        assert resolved(asked, device) == asked
    assert dtype_in_words("float32", device) == "computed in float32"
    line, *warnings = dtype_in_words("bfloat16", device).splitlines()
    assert line == "computed in bfloat16"
    assert len(warnings) == (platform == "gpu" and dtype == "float32")
    for warning in warnings:
        assert warning.startswith(f"warning: {kind} has no units for bfloat16")
        assert warning.endswith(": --config.model.compute_dtype=float32 is faster")


@pytest.mark.parametrize(
    "flags, warned",
    [("fpu avx2", True), ("fpu avx512f avx512_bf16", False), ("asimd bf16", False), (None, False)],
)
def test_a_cpu_says_whether_it_multiplies_bfloat16(flags, warned, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")
    if flags:
        (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    device = SimpleNamespace(platform="cpu", device_kind="cpu")
    _, *warnings = dtype_in_words("bfloat16", device).splitlines()
    assert [line.startswith("warning: cpu has no units for bfloat16") for line in warnings] == (
        [True] * warned
    )
