"""The memory of a device: what a program needs, what there is, and what to do about too little."""

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import jax

from bertjax.base.errors import InputError
from bertjax.base.files import size_in_words

# "Out of memory while trying to allocate 16.00GiB", "Out of memory allocating 17179869184 bytes".
_ASKED = re.compile(r"(?i)allocat\w*(?: request for)? ([\d.]+) ?(bytes|[KMGT]i?B)")


class Needs(NamedTuple):
    """The bytes that a program takes on one device: of its arguments, and of all other arrays."""

    arguments: int
    temporaries: int


def needs_of(program: jax.stages.Compiled) -> Needs:
    """What the compiler says. A GPU's libraries may take some workspace besides."""
    memory = program.memory_analysis()
    assert memory is not None  # CPUs, GPUs and TPUs have it
    not_donated = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return Needs(memory.argument_size_in_bytes, memory.temp_size_in_bytes + not_donated)


def device_memory(device: jax.Device) -> int | None:
    """The bytes of a device that JAX may use; None if it does not say, as a CPU."""
    return (device.memory_stats() or {}).get("bytes_limit")


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device has too little memory for a program, when it is compiled or when it runs."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


@contextlib.contextmanager
def less_memory(*hints: str) -> Iterator[None]:
    """Raises InputError with `hints` if a device runs out of memory in the block or function."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(out_of_memory(error, *hints)) from error


def out_of_memory(error: Exception, *hints: str) -> str:
    """The message for the user of such an error; for `hints` see `less_memory`."""
    device = jax.local_devices()[0]
    request, limit = _ASKED.search(str(error)), device_memory(device)
    facts = []
    if request:
        whole = request[2] == "bytes"
        size = size_in_words(int(request[1])) if whole else f"{request[1]} {request[2]}"
        facts.append(f"{size} more were asked for")
    if limit:
        facts.append(f"JAX may use {size_in_words(limit)} of it")
    details = f" ({', '.join(facts)})" if facts else ""
    return f"{device.device_kind} is out of memory{details}: {what_helps(*hints)}"


def what_helps(*hints: str) -> str:
    """The end of a message: `hints`, and what helps with any program on this device."""
    hints = (*hints, "end other programs that use the device")
    if jax.default_backend() == "gpu":
        hints = (*hints, "set the variable XLA_PYTHON_CLIENT_MEM_FRACTION=0.95")
    return f"{'in this order, ' if len(hints) > 1 else ''}{', '.join(hints)}"
