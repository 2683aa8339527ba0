"""What the two yardsticks of launch/compile_check.py say of work whose least time is known.

  python tests/benchmarks/tpu_calibration.py --topology=v5e:1x1 --output=tpu_calibration.json

No TPU is used. Each operation is compiled as XLA makes it, and as a Pallas kernel, which has no
estimate. Its least time follows from the published figures of a device: of its matrix units for the
product, of its HBM for the others, which read and write 96 MiB or read as much. It needs the extra
`tpu`.
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tables
from jax.experimental import pallas as pl
from jax.sharding import SingleDeviceSharding
from report import started

from bertjax.base.files import write_json
from bertjax.compile_report.report import Step, compile_and_report
from bertjax.compile_report.topology import describe, only_compile

ROWS, SIDE = 192, 512  # heads of 16 sequences of BERT-base, and their length
SCORES = ROWS, SIDE, SIDE
TOKENS, WIDTH, MLP = 8192, 768, 3072


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation, on blocks of a grid in its kernel.

    Attributes:
      compute: arrays or blocks -> the result.
      inputs: their shapes; bfloat16.
      blocks: the shapes of the kernel's blocks, of the inputs and the result.
      places: grid indices -> the block's place, for each of them.
      grid: of the kernel.
      result: its shape; bfloat16.
    """

    compute: Callable[..., jax.Array]
    inputs: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[int, ...], ...]
    places: tuple[Callable[..., tuple], ...]
    grid: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all inputs and of the result."""
        return sum(2 * functools.reduce(int.__mul__, s) for s in (*self.inputs, self.result))

    def kernel(self, *arrays: jax.Array) -> jax.Array:
        """The operation by a Pallas kernel."""

        def body(*refs):
            *inputs, out = refs
            out[...] = self.compute(*(ref[...] for ref in inputs)).astype(out.dtype)

        *inputs, result = map(pl.BlockSpec, self.blocks, self.places)
        shape = jax.ShapeDtypeStruct(self.result, jnp.bfloat16)
        return pl.pallas_call(
            body, grid=self.grid, in_specs=inputs, out_specs=result, out_shape=shape
        )(*arrays)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32).astype(jnp.bfloat16)


def _exponential(x: jax.Array) -> jax.Array:
    return jnp.exp(x.astype(jnp.float32)).astype(jnp.bfloat16)


def _sum(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32).sum(-2).astype(jnp.bfloat16)


def _rows(*block: int) -> dict[str, Any]:
    """One block of the result, and one row of scores, for each row."""
    each = (lambda i: (i, 0, 0)), (lambda i: (i, *(0,) * (len(block) - 1)))
    return dict(blocks=((1, SIDE, SIDE), block), places=each, grid=(ROWS,))


OPERATIONS = {
    "product 8,192 x 768 x 3,072": Operation(
        _product,
        ((TOKENS, WIDTH), (WIDTH, MLP)),
        ((512, WIDTH), (WIDTH, 1024), (512, 1024)),
        ((lambda i, j: (i, 0)), (lambda i, j: (0, j)), (lambda i, j: (i, j))),
        (TOKENS // 512, MLP // 1024),
        (TOKENS, MLP),
    ),
    "exponential of 192 x 512 x 512": Operation(
        _exponential, (SCORES,), result=SCORES, **_rows(1, SIDE, SIDE)
    ),
    "sum over 512 of 192 x 512 x 512": Operation(
        lambda x: _sum(x)[:, None], (SCORES,), result=(ROWS, 1, SIDE), **_rows(1, 1, SIDE)
    ),
    "copy of 192 x 512 x 512, negated": Operation(
        jnp.negative, (SCORES,), result=SCORES, **_rows(1, SIDE, SIDE)
    ),
}


def measure(operation: Operation, topology: str) -> dict[str, Any]:
    """The seconds of both forms by both yardsticks, and the least."""
    where = describe(topology)
    flops = 2 * TOKENS * WIDTH * MLP if operation.compute is _product else 0
    step = Step(length=0, batch_size=0, accumulate=1, steps=0, flops=flops)
    sharding = SingleDeviceSharding(where.devices[0])
    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=sharding) for s in operation.inputs]
    forms = {"xla": operation.compute, "pallas": operation.kernel}
    found = {}
    for name, form in forms.items():
        report = compile_and_report(jax.jit(form).lower(*shapes), step, where, ())
        found[name] = {by: times.seconds for by, times in report.yardsticks.items()}
    peak = where.peak / where.chip.devices
    return found | {"least": max(flops / peak, operation.bytes / where.device_hbm)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:1x1", help="one chip of a generation")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    arguments = parser.parse_args()
    only_compile()
    packages = "jax", "libtpu"
    report = started(arguments.output, packages, topology=arguments.topology, operations={})
    for name, operation in OPERATIONS.items():
        report["operations"][name] = measure(operation, arguments.topology)
        write_json(arguments.output, report)
    print(tables.table_of_calibration(report))


if __name__ == "__main__":
    main()
