"""The memory of CPU steps is kept, which only holds if it is asked for before JAX's devices."""

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
