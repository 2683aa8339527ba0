"""Where every parameter of the shipped configs lies, on file: a change of placement is a diff.

To accept one: python tests/test_golden_shardings.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden_shardings"
# name -> devices, and flags of launch/show_sharding.py
SHOWN = {
    "base_16": (16, "--config=configs/pretrain_base_16.py"),
    "large_64": (64, "--config=configs/pretrain_large_64.py"),
    "large_64_lamb": (64, "--config=configs/pretrain_large_64_lamb.py"),
    "large_64_fsdp": (64, "--config=configs/pretrain_large_64.py --config.layout=fsdp"),
    "large_64_tensor_zero1": (
        64,
        "--config=configs/pretrain_large_64.py --config.layout=tensor_zero1 --config.mesh.model=4",
    ),
}


def table(name: str) -> str:
    """What the door prints, without its pictures."""
    devices, flags = SHOWN[name]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(REPOSITORY),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    command = [sys.executable, "launch/show_sharding.py", *flags.split()]
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.partition("\na batch:")[0]


@pytest.mark.parametrize("name", SHOWN)
def test_shardings_are_those_on_file(name):
    assert table(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in SHOWN:
        (GOLDEN / f"{each}.txt").write_text(table(each), encoding="utf-8")
