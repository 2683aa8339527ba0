"""The factors of a low-rank change of a kernel (LoRA, arXiv 2106.09685): their names and axes.

A kernel [*inputs, *outputs] that has them is changed by down [*inputs, rank] @ up [rank, *outputs].
Axes that count matrices (layers; query, key and value; the halves of a gate) are axes of both
factors, so that each matrix has a change of its own.
"""

from collections.abc import Sequence

from bertjax.base import axes

KERNEL, DOWN, UP = "kernel", "lora_down", "lora_up"  # arrays of one module
FACTORS = (DOWN, UP)
COUNTED = (axes.QKV, axes.GATE)  # the first axis of the outputs, if it counts matrices


def factor_axes(kernel: Sequence[str], inputs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The logical axes of both factors of a kernel with the axes (LAYERS,) inputs, outputs."""
    layers = tuple(kernel[: kernel[0] == axes.LAYERS])
    sides = tuple(kernel[len(layers) :])
    outputs = sides[inputs:]
    counted = tuple(name for name in outputs if name in COUNTED)
    down = (*layers, *sides[:inputs], *counted, axes.RANK)
    return down, (*layers, *counted, axes.RANK, *outputs[len(counted) :])


def subscripts(kernel: Sequence[str], inputs: int) -> str:
    """Of the einsum that multiplies the factors: "down,up->kernel"."""
    letter = {name: "abcdefgh"[number] for number, name in enumerate((*kernel, axes.RANK))}
    down, up = ("".join(letter[name] for name in side) for side in factor_axes(kernel, inputs))
    return f"{down},{up}->{''.join(letter[name] for name in kernel)}"
