"""The XLA flags of the suite, which compiles many small programs and runs each for a moment."""

from importlib.metadata import version

# Compilation is most of the suite's time. With these flags it takes a third of the default's time,
# and the results differ only by rounding. JAX 0.10 is the last for Python 3.11.
_QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false"
    if version("jax").startswith("0.10.")
    else "--xla_cpu_opt_preset=FAST_COMPILE",
)


def xla_flags(devices: int) -> str:
    """The value of XLA_FLAGS for a process with this many simulated CPU devices."""
    return " ".join((f"--xla_force_host_platform_device_count={devices}", *_QUICK_TO_COMPILE))
