"""Which way computes self-attention: rules by device, lengths, window, dropout and dtype.

The rules are those of the measured tables (docs/results/benchmarks.md, docs/results/tpu.md).
"""

import functools
import os
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.base import axes
from bertjax.base.extras import install
from bertjax.models.attention.contract import AttentionPattern
from bertjax.models.attention.library_kernels import (
    TOKENS_OF_DOCUMENT,
    cudnn_packed,
    flash_attention,
)
from bertjax.models.attention.local import block_length
from bertjax.models.layers.mesh_axes import mesh_axes
from bertjax.models.layers.platform import platform

AUTO, EINSUM, FUSED, KERNEL = NAMES = ("auto", "einsum", "fused", "kernel")
BLOCKS, FLASH, CUDNN = "blocks", "flash", "cudnn"  # further ways, which only "auto" takes
# XLA's flags by which a program on a GPU gives the same bits each time.
_EXACT = re.compile(r"--xla_gpu_(deterministic_ops|exclude_nondeterministic_ops)(=true|=1|\s|$)")


class Device(NamedTuple):
    """What the choice reads of a device."""

    platform: str  # "cuda" is a GPU of NVIDIA; others have the names of JAX
    capability: int = 0  # 10 x the compute capability of a GPU, such as 90 for an H100; else 0
    flash: bool = False  # FlashAttention has kernels for the GPU
    cudnn_packed: bool = False  # JAX lends cuDNN's attention within packed documents
    exact: bool = False  # XLA's flags ask for programs that give the same bits each time


class Call(NamedTuple):
    """What the choice reads of a call of self-attention."""

    length: int  # S; not an int in a program that is exported for any length
    width: int  # H
    dtype: jax.typing.DTypeLike
    pattern: AttentionPattern = AttentionPattern()
    rate: float = 0.0  # the probability of dropping an attention probability in training
    dropping: bool = True  # whether this call drops
    mask_of_keys: bool = True  # whether `Mask.keys` is [B, S]
    bias: bool = False  # whether the scores get a bias, which kernels do not add
    distances: bool = False  # whether distances have vectors, which kernels on a TPU know


class Way(NamedTuple):
    """A way to compute self-attention, and the reason for it, as a user reads it."""

    name: str
    why: str = ""


@functools.cache
def this_device() -> Device:
    """The device of this process."""
    backend = jax.default_backend()
    capability = getattr(jax.devices()[0], "compute_capability", "")
    if backend != "gpu" or not re.fullmatch(r"\d+\.\d+", str(capability)):
        return Device(backend)
    number = int(str(capability).replace(".", ""))
    exact = bool(_EXACT.search(os.environ.get("XLA_FLAGS", "")))
    library = flash_attention()
    flash = library is not None and library.serves(number)
    return Device("cuda", number, flash, number >= 90 and cudnn_packed() is not None, exact)


def target() -> Device:
    """The device that programs are compiled for."""
    return Device("tpu") if platform() == "tpu" else this_device()


def taken(name: str, call: Call) -> Way:
    """What computes a call in this process; `name` is one of `NAMES`."""
    return way(name, target(), call)


def for_documents(name: str, tokens: float, rate: float) -> str:
    """The name for packed documents of that mean length; short ones are too many for libraries."""
    short = tokens < 2 * TOKENS_OF_DOCUMENT  # rows differ
    if name != AUTO or not short or this_device().platform != "cuda":
        return name
    return EINSUM if rate else FUSED


def way(name: str, device: Device, call: Call) -> Way:
    """What computes a call on a device; all `NAMES` but "auto" are taken wherever they can."""
    length, pattern = call.length, call.pattern
    window = pattern.window
    known = device.platform == "tpu" and name != FUSED and window is None
    if call.bias or (call.distances and not known):
        return Way(FUSED if name == FUSED else EINSUM)
    is_exported = not isinstance(length, int)
    # Local attention by blocks is cheaper from some length on.
    blocks = window is not None and not is_exported and length > 2 * block_length(window)
    rest = Way(BLOCKS if blocks else EINSUM)
    if name == FUSED:
        return rest if blocks else Way(FUSED)
    if name == EINSUM or is_exported:
        return rest
    # In local attention by blocks, dropout has other bits than in kernels.
    if device.platform == "tpu" and not (call.rate and blocks):
        from bertjax.models.attention.kernel.attend import serves

        served = serves(length, call.width, call.dtype, distances=call.distances)
        return Way(KERNEL) if served else rest
    if device.capability >= 80 and name == KERNEL and call.mask_of_keys:
        from bertjax.models.attention import gpu_kernel

        served = gpu_kernel.serves(length, call.width, call.dtype) and not (call.rate and blocks)
        return Way(KERNEL) if served else rest
    return _on_gpu(device, call, rest) if device.platform == "cuda" and name == AUTO else rest


def _on_gpu(device: Device, call: Call, rest: Way) -> Way:
    """What "auto" takes on a GPU of NVIDIA; `rest` is what computes everything."""
    if call.dropping and call.rate:
        return rest._replace(why="kernels of libraries cannot drop attention probabilities")
    if jnp.dtype(call.dtype) != jnp.bfloat16:
        return rest._replace(why="kernels of libraries need compute_dtype=bfloat16")
    if device.capability < 80 or call.width % 8 or call.width > 128:
        return rest._replace(why="no library has a kernel for this GPU and width of heads")
    if (mesh_axes((axes.LENGTH,)) or (None,))[0] is not None:
        return rest._replace(why="devices share each sequence")
    if not call.mask_of_keys:
        return Way(FUSED, "the mask has a value for each pair")
    # The gradient of queries is summed in any order, but not within a window on Hopper.
    same_bits = device.capability == 90 and call.pattern.window is not None
    if device.flash and (same_bits or not device.exact):
        return Way(FLASH, "" if same_bits else "its gradient's last bits differ from run to run")
    why = "XLA_FLAGS ask for the same bits each time"
    if not device.flash:
        why = f"FlashAttention is not installed for this GPU: {install('cuda')}"
    if rest.name == BLOCKS:
        return rest._replace(why=why)
    packed = device.cudnn_packed and call.pattern == AttentionPattern()
    return Way(CUDNN if packed else FUSED, why)
