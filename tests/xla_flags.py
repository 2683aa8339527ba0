"""The XLA flags of the suite: it compiles many small programs, and runs each for a moment."""

# Compile time is most of the suite's time. Unoptimized code of the older emitters takes a third
# of what XLA takes to compile as users have it, and computes the same to rounding.
_QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)


def xla_flags(devices: int) -> str:
    """The value of XLA_FLAGS for a process with this many simulated CPU devices."""
    return " ".join((f"--xla_force_host_platform_device_count={devices}", *_QUICK_TO_COMPILE))
