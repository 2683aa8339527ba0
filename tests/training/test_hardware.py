"""The memory of CPU steps is kept, within limits; it has to be asked for before JAX's devices."""

import subprocess
import sys

import pytest

# A temporary of 144 MB each time; after the first runs it should be that of a run before. (One
# that is not given back before the next begins can make it two.)
_STEPS = """
import resource, sys
import jax, jax.numpy as jnp
from bertjax.training.hardware import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
step = jax.jit(lambda x: (x @ x.T) @ x)
x = jnp.ones((6_000, 8))
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    step(x).block_until_ready()
before = faults()
for _ in range(10):
    step(x).block_until_ready()
print(faults() - before)
"""

# Steps of four lengths, whose temporaries are of 64, 144, 256 and 400 MB: kept, they add up.
_LENGTHS = """
import resource, sys, time
import jax, jax.numpy as jnp
from bertjax.training import hardware
hardware._memory_of_the_machine = lambda: float(sys.argv[1])
hardware.keep_freed_memory()
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
step = jax.jit(lambda x: (x @ x.T) @ x)
for length in (4_000, 6_000, 8_000, 10_000):
    x = jnp.ones((length, 8))
    for _ in range(3):
        step(x).block_until_ready()
time.sleep(1)
kept = resident()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step(x).block_until_ready()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

_DOOR = """
import runpy, sys
from jax._src import xla_bridge
from bertjax import {program}
def keep_freed_memory():
    print("devices" if xla_bridge.backends_are_initialized() else "no devices yet")
    sys.exit()
{program}.keep_freed_memory = keep_freed_memory
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def output(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_pages_are_not_mapped_again():
    page_faults_of_one_temporary = 144_000_000 / 4096
    assert int(output(_STEPS, "no")) > 5 * page_faults_of_one_temporary
    assert int(output(_STEPS, "keep")) < 3 * page_faults_of_one_temporary


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_is_kept_is_bounded():
    """By a third of the memory that there is; above that each step gives its own back."""
    kept, faults = map(int, output(_LENGTHS, "1e12").split())
    assert kept > 600e6 and faults < 4 * 400e6 / 4096
    kept, faults = map(int, output(_LENGTHS, "9e8").split())
    assert kept < 400e6 and faults > 4.5 * 400e6 / 4096


@pytest.mark.parametrize(
    "program, door, config",
    [
        ("pretrain", "pretrain", "pretrain_tiny.py"),
        ("finetune", "finetune_glue", "finetune_glue.py:MRPC"),
        ("finetune", "finetune_ner", "finetune_ner.py:features"),
    ],
)
def test_programs_ask_before_there_are_devices(program, door, config, repository, tmp_path):
    arguments = f"--config={repository}/configs/{config}", f"--workdir={tmp_path}"
    found = output(_DOOR.format(program=program), f"{repository}/launch/{door}.py", *arguments)
    assert found == "no devices yet"
