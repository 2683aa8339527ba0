"""The time of attention by kernels and by einsum, by the yardsticks of launch/compile_check.py.

  python tests/benchmarks/tpu_kernels.py --topology=v5e:1x1,v6e:1x1 --output=tpu_kernels.json

No TPU is used. Attention alone is compiled for one chip, forward and backward, in bfloat16. What
fits a chip's memory by kernels only has no time by einsum. It needs the extra `tpu`.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tables
from jax.sharding import SingleDeviceSharding
from report import started

from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.compile_report.report import Step, compile_and_report
from bertjax.compile_report.topology import describe, only_compile
from bertjax.models.attention.choice import BLOCKS, EINSUM, KERNEL
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.implementations import self_attention
from bertjax.models.layers.rotary import rotation

WIDTH = 64


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sequences of one chip, and how they are attended.

    Attributes:
      rows, length, heads: B, S and N; H is 64.
      window: None: global.
      modern: with rotary positions and without dropout, as ModernBERT; else as BERT.
    """

    rows: int
    length: int
    heads: int
    window: int | None = None
    modern: bool = True

    def __str__(self) -> str:
        reach = "" if self.window is None else f", window {self.window}"
        kind = "ModernBERT" if self.modern else "BERT"
        return f"{kind}: {self.rows} x {self.length:,}, {self.heads} heads{reach}"


SHAPES = (
    Shape(32, 256, 12, modern=False),
    Shape(27, 300, 12, modern=False),
    Shape(16, 512, 12, modern=False),
    Shape(4, 512, 16, modern=False),
    Shape(16, 1024, 12),
    Shape(16, 1024, 12, window=64),
    Shape(1, 8192, 12),
    Shape(1, 8192, 12, window=64),
    Shape(1, 8192, 16),
    Shape(1, 16_384, 12),
    Shape(1, 32_768, 12),
)
_NEVER_BY_EINSUM = 16_384  # the scores of so many positions take minutes to compile


def measure(shape: Shape, topology: str) -> dict[str, Any]:
    """The seconds of forward and backward together; of kernels, also each."""
    where = describe(topology)
    sharding = SingleDeviceSharding(where.devices[0])
    # The products of a model give and take the columns of all heads side by side.
    tokens, columns = (shape.rows, shape.length), shape.heads * WIDTH
    arrays = (
        ((*tokens, 3 * columns), jnp.bfloat16),
        (tokens, jnp.int32),
        ((*tokens, columns), jnp.bfloat16),
    )
    shapes = [jax.ShapeDtypeStruct(*each, sharding=sharding) for each in arrays]

    def both(by_kernel: bool):
        way = KERNEL if by_kernel else BLOCKS if shape.window else EINSUM

        def attend(qkv: jax.Array, keys: jax.Array, gradient: jax.Array):
            by = rotation(jnp.arange(shape.length), WIDTH, 10_000.0) if shape.modern else None
            drop = None if shape.modern else DropoutSpec(jnp.uint32(1), rate=0.1, bits=16)

            def context_of(qkv: jax.Array) -> jax.Array:
                context = self_attention(
                    qkv.reshape(*tokens, 3, shape.heads, WIDTH),
                    *(Mask(keys), AttentionPattern(window=shape.window), by),
                    drop=drop,
                    way=way,
                )
                return context.reshape(*tokens, columns)

            context, gradient_of = jax.vjp(context_of, qkv)
            return context, *gradient_of(gradient)

        return jax.jit(attend).lower(*shapes)

    step = Step(length=shape.length, batch_size=shape.rows, accumulate=1, steps=0, flops=0)
    found: dict[str, Any] = {}
    for name, by_kernel in (("kernel", True), ("einsum", False)):
        if not by_kernel and shape.length >= _NEVER_BY_EINSUM:
            continue
        try:
            report = compile_and_report(both(by_kernel), step, where, ())
        except (InputError, jax.errors.JaxRuntimeError) as error:
            found[name] = {"fails": " ".join(str(error).split())[:200]}
            continue
        found[name] = {by: times.seconds for by, times in report.yardsticks.items()}
        for kernel, total in report.kernels.items():
            found[name][kernel] = total.seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:1x1", help="one chip each, with commas between")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    arguments = parser.parse_args()
    only_compile()
    report = started(arguments.output, ("jax", "libtpu"), chips={})
    for topology in arguments.topology.split(","):
        shapes = report["chips"].setdefault(topology, {})
        for shape in SHAPES:
            if str(shape) in shapes:  # of an earlier call
                continue
            shapes[str(shape)] = measure(shape, topology)
            write_json(arguments.output, report)
    print(tables.table_of_kernels(report))


if __name__ == "__main__":
    main()
