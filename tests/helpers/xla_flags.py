"""The XLA flags of the suite, which compiles many small programs and runs each for a moment."""

from importlib.metadata import version

# Compilation is most of the suite's time. With these flags it takes a third of the default's time,
# and the results differ only by rounding.
_QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    # Only JAX 0.10, the last for Python 3.11, has it; later ones compile twice as long.
    *(["--xla_cpu_use_fusion_emitters=false"] if version("jax").startswith("0.10.") else []),
)


def xla_flags(devices: int) -> str:
    """The value of XLA_FLAGS for a process with this many simulated CPU devices."""
    return " ".join((f"--xla_force_host_platform_device_count={devices}", *_QUICK_TO_COMPILE))
