"""The memory of CPU steps is kept, up to a limit; this must be set before JAX makes devices."""

import subprocess
import sys

import pytest

# Each case runs in a process forked from one that has imported JAX, with steps whose temporaries
# have 64, 144 and 256 MB. It prints the bytes that the process still has: at once, or after it has
# given memory back, which takes a moment.
_STEPS = """
import os, resource, sys, time
import jax, jax.numpy as jnp
from bertjax.training import hardware

resident = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def kept(memory, least):
    if memory:
        hardware._memory_of_the_machine = lambda: memory
        hardware.keep_freed_memory()
    step = jax.jit(lambda x: (x @ x.T) @ x)
    step(jnp.ones((8, 8))).block_until_ready()
    before = resident()
    for length in (4_000, 6_000, 8_000):
        step(jnp.ones((length, 8))).block_until_ready()
    end = time.monotonic() + 60
    while resident() - before > least and time.monotonic() < end:
        time.sleep(0.02)
    return resident() - before

for case in sys.argv[1:]:
    if os.fork() == 0:
        print(kept(*map(float, case.split(","))), flush=True)
        os._exit(0)
    os.wait()
"""

_DOOR = """
import runpy, sys
from jax._src import xla_bridge
from bertjax.programs import {program}
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
def test_freed_memory_is_kept_up_to_a_bound():
    """Memory is kept up to a third of the machine's memory; above that it is given back."""
    never, kept, bounded = map(int, output(_STEPS, "0,1e8", "1e12,1e12", "7.5e8,1e8").split())
    assert never < 100e6
    assert kept > 250e6
    assert bounded < 100e6


@pytest.mark.parametrize(
    "program, door, config",
    [
        ("pretrain", "pretrain", "pretrain_tiny.py"),
        ("finetune_task", "finetune", "finetune_glue.py:MRPC"),
        ("finetune_task", "finetune_ner", "finetune_ner.py:features"),
    ],
)
def test_programs_ask_before_there_are_devices(program, door, config, repository, tmp_path):
    arguments = f"--config={repository}/configs/{config}", f"--workdir={tmp_path}"
    found = output(_DOOR.format(program=program), f"{repository}/launch/{door}.py", *arguments)
    assert found == "no devices yet"
