"""The sharding of every parameter of the shipped configs is on file: a change is a diff.

To accept a change: python -m tests.training.sharding.test_golden_shardings
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.checkout import REPOSITORY
from tests.helpers.slow_cases import others_slow
from tests.helpers.xla_flags import xla_flags

GOLDEN = Path(__file__).resolve().parent / "golden_shardings"
# name -> devices, config, and the changed keys
SHOWN = {
    "base_16": (16, "pretrain_base_16", {}),
    "large_64": (64, "pretrain_large_64", {}),
    "modern_base_16": (16, "pretrain_modern_base_16", {}),
    "large_64_lamb": (64, "pretrain_large_64_lamb", {}),
    "large_64_fsdp": (64, "pretrain_large_64", {"layout": "fsdp"}),
    "large_64_tensor_zero1": (64, "pretrain_large_64", {"layout": "tensor_zero1", "mesh.model": 4}),
}

_DEFAULT = ("large_64_tensor_zero1",)  # in the default tier
_OTHERS = tuple(name for name in SHOWN if name not in _DEFAULT)

# Prints the output of launch/show_sharding.py for each, without pictures.
_PROGRAM = """
import contextlib, importlib, io, json, sys
import jax
from bertjax.programs import show_sharding
show_sharding._draw = lambda *_: None
tables, all_devices = {}, jax.devices()
for name, (count, config, changes) in json.load(sys.stdin).items():
    jax.devices = lambda: all_devices[:count]
    config = importlib.import_module(f"configs.{config}").get_config()
    config.update_from_flattened_dict(changes)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        show_sharding.run(config)
    tables[name] = output.getvalue()
json.dump(tables, sys.stdout)
"""


@functools.cache
def tables(names: tuple[str, ...] = tuple(SHOWN)) -> dict[str, str]:
    """Some tables by name, made by one process with the devices."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(REPOSITORY),
        "XLA_FLAGS": xla_flags(64),
    }
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps({name: SHOWN[name] for name in names}),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", others_slow(SHOWN, *_DEFAULT))
def test_shardings_are_those_on_file(name):
    made_together = _DEFAULT if name in _DEFAULT else _OTHERS
    assert tables(made_together)[name] == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each, text in tables().items():
        (GOLDEN / f"{each}.txt").write_text(text, encoding="utf-8")
