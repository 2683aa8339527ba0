"""Parameters with logical axes, and the dense product.

A `spec` below is that of an encoder: `bertjax.encoders.contract.EncoderSpec`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.layers.mesh_axes import mesh_axes


class Parameter(nn.LogicallyPartitioned):
    """The box of a parameter while a model is initialized: its logical axes, and how it is used.

    Attributes:
      gathered_as: the dtype in which a step may gather it; it is stored in float32.
    """

    gathered_as: str = flax.struct.field(default="float32", pytree_node=False)


def parameter(
    module: nn.Module, name: str, axes: Sequence[str], shape, init, gathered_as: str = "float32"
) -> jax.Array:
    """A float32 parameter with a logical axis (`bertjax.base.axes`) for each dimension."""

    def boxed(*arguments):
        return Parameter(init(*arguments), tuple(axes), gathered_as=gathered_as)

    return module.param(name, boxed, tuple(shape), jnp.float32)


def gathered_as(spec: Any) -> str:
    """The dtype for matrices of products: that of the products, if their gradients have it too."""
    return spec.compute_dtype if spec.compute_dtype == spec.gradient_dtype else "float32"


def truncated_normal(spec: Any):
    """The reference's initializer: normal cut at two sigmas (modeling.py, create_initializer).

    Cut, not rescaled: the deviation that results is 0.88 of `initializer_range`, as there.
    """
    return nn.initializers.truncated_normal(spec.initializer_range)


def normal(spec: Any):
    """The initializer of transformers, and of most published fine-tuning: normal, not cut."""
    return nn.initializers.normal(spec.initializer_range)


def exact(spec: Any) -> Any:
    """For a layer that gives logits of classes: bfloat16's few values would make ties of them."""
    return dataclasses.replace(spec, compute_dtype="float32")


@jax.custom_vjp
def add_bias(y: jax.Array, bias: jax.Array) -> jax.Array:
    """y [..., *outputs] + bias [*outputs], in the dtype of y."""
    return y + bias.astype(y.dtype)


def _bias_gradient(bias_dims: int, gradient: jax.Array) -> jax.Array:
    rows = tuple(range(gradient.ndim - bias_dims))
    return gradient.astype(jnp.float32).sum(rows)


def _bias_gradient_by_product(bias_dims: int, gradient: jax.Array) -> jax.Array:
    """The same by the matrix unit of a TPU, with 8 equal rows, the least it takes."""
    rows = tuple(range(gradient.ndim - bias_dims))
    ones = jnp.ones((8, *gradient.shape[: len(rows)]), gradient.dtype)
    sums = jax.lax.dot_general(
        ones,
        gradient,
        ((tuple(range(1, ones.ndim)), rows), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return sums[0]


def _add_bias_backward(bias_dims: int, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gradient, jax.lax.platform_dependent(
        gradient,
        tpu=functools.partial(_bias_gradient_by_product, bias_dims),
        default=functools.partial(_bias_gradient, bias_dims),
    )


add_bias.defvjp(lambda y, bias: (add_bias(y, bias), bias.ndim), _add_bias_backward)


def product(subscripts: str, x: jax.Array, kernel: jax.Array, spec: Any, dtype) -> jax.Array:
    """einsum(subscripts, x, kernel) in the compute dtype.

    The kernel's gradient leaves each device in `spec.gradient_dtype`, and is summed so.

    Args:
      subscripts: "rows of x, kernel -> result", as of einsum.
      dtype: of the result.
    """
    if spec.compute_dtype == spec.gradient_dtype == "float32":
        # Autodiff's gradient is the same, in an order that XLA:CPU computes faster.
        return jnp.einsum(subscripts, x.astype("float32"), kernel, preferred_element_type=dtype)
    return _product(subscripts, x, kernel, spec, dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3, 4))
def _product(subscripts, x, kernel, spec, dtype):
    return _product_forward(subscripts, x, kernel, spec, dtype)[0]


def _product_forward(subscripts, x, kernel, spec, dtype):
    like = jnp.empty((0,), x.dtype), jnp.empty((0,), kernel.dtype)
    x, kernel = x.astype(spec.compute_dtype), kernel.astype(spec.compute_dtype)
    y = jnp.einsum(subscripts, x, kernel, preferred_element_type=dtype)
    return y, (x, kernel, *like)


def _product_backward(subscripts, spec, dtype, kept, gradient):
    x, kernel, like_x, like_kernel = kept
    inputs, result = subscripts.split("->")
    of_x, of_kernel = inputs.split(",")
    gradient = gradient.astype(spec.compute_dtype)
    d_x = jnp.einsum(f"{result},{of_kernel}->{of_x}", gradient, kernel)
    d_kernel = jnp.einsum(
        f"{result},{of_x}->{of_kernel}", gradient, x, preferred_element_type=spec.gradient_dtype
    )
    return d_x.astype(like_x.dtype), d_kernel.astype(like_kernel.dtype)


_product.defvjp(_product_forward, _product_backward)


class Dense(nn.Module):
    """x [..., *inputs] -> [..., *outputs]: a product over the last axes, and a bias.

    Attributes:
      inputs, outputs: logical axis -> size, of the kernel's two sides.
      kernel_init: spec -> the kernel's initializer.
      use_bias: whether a bias is added.
      joined: whether the axes of each side are multiplied as one, where no mesh axis splits them.
        A TPU lays out such a result without gaps, as kernels of attention read and write it.
    """

    spec: Any
    inputs: dict[str, int]
    outputs: dict[str, int]
    kernel_init: Callable[[Any], nn.initializers.Initializer] = truncated_normal
    use_bias: bool = True
    joined: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape_in, shape_out = tuple(self.inputs.values()), tuple(self.outputs.values())
        axes = (*self.inputs, *self.outputs)
        spec, shape = self.spec, shape_in + shape_out
        kernel_init = self.kernel_init(spec)
        kernel = parameter(self, "kernel", axes, shape, kernel_init, gathered_as(spec))
        batch = x.shape[: x.ndim - len(shape_in)]
        if self.joined:
            shape_in, shape_out = _joined(self.inputs), _joined(self.outputs)
        rows, ins, outs = "abc"[: len(batch)], "ij"[: len(shape_in)], "opq"[: len(shape_out)]
        subscripts = f"{rows}{ins},{ins}{outs}->{rows}{outs}"
        x, kernel = x.reshape(batch + shape_in), kernel.reshape(shape_in + shape_out)
        y = product(subscripts, x, kernel, spec, jnp.dtype(spec.compute_dtype))
        if self.use_bias:
            zeros = nn.initializers.zeros
            bias = parameter(self, "bias", tuple(self.outputs), self.outputs.values(), zeros)
            y = add_bias(y, bias.reshape(shape_out))
        return y.reshape(*batch, *self.outputs.values())


def _joined(sizes: dict[str, int]) -> tuple[int, ...]:
    """The sizes of logical axes, where an axis that no mesh axis splits joins the one before it."""
    split = mesh_axes(tuple(sizes)) or (None,) * len(sizes)
    joined: list[int] = []
    for size, axis in zip(sizes.values(), split, strict=True):
        if joined and axis is None:
            joined[-1] *= size
        else:
            joined.append(size)
    return tuple(joined)
