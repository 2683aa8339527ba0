"""Parameters with logical axes, and the dense product.

A `spec` below is that of an encoder: `bertjax.encoders.contract.EncoderSpec`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn


def parameter(module: nn.Module, name: str, axes: Sequence[str], shape, init) -> jax.Array:
    """A float32 parameter with a logical axis (`bertjax.base.axes`) for each dimension."""
    return module.param(
        name, nn.with_logical_partitioning(init, tuple(axes)), tuple(shape), jnp.float32
    )


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
    x_type, x, narrow = x.dtype, x.astype(spec.compute_dtype), kernel.astype(spec.compute_dtype)
    y = jnp.einsum(subscripts, x, narrow, preferred_element_type=dtype)
    return y, (x, narrow, jnp.empty((0,), x_type))


def _product_backward(subscripts, spec, dtype, kept, gradient):
    x, kernel, like_x = kept
    inputs, result = subscripts.split("->")
    of_x, of_kernel = inputs.split(",")
    gradient = gradient.astype(spec.compute_dtype)
    d_x = jnp.einsum(f"{result},{of_kernel}->{of_x}", gradient, kernel)
    d_kernel = jnp.einsum(
        f"{result},{of_x}->{of_kernel}", gradient, x, preferred_element_type=spec.gradient_dtype
    )
    return d_x.astype(like_x.dtype), d_kernel.astype(jnp.float32)


_product.defvjp(_product_forward, _product_backward)


class Dense(nn.Module):
    """x [..., *inputs] -> [..., *outputs]: a product over the last axes, and a bias.

    Attributes:
      inputs, outputs: logical axis -> size, of the kernel's two sides.
      kernel_init: spec -> the kernel's initializer.
      use_bias: whether a bias is added.
    """

    spec: Any
    inputs: dict[str, int]
    outputs: dict[str, int]
    kernel_init: Callable[[Any], nn.initializers.Initializer] = truncated_normal
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape_in, shape_out = tuple(self.inputs.values()), tuple(self.outputs.values())
        axes = (*self.inputs, *self.outputs)
        kernel_init = self.kernel_init(self.spec)
        kernel = parameter(self, "kernel", axes, shape_in + shape_out, kernel_init)
        rows, ins = "abc"[: x.ndim - len(shape_in)], "ij"[: len(shape_in)]
        outs = "opq"[: len(shape_out)]
        subscripts = f"{rows}{ins},{ins}{outs}->{rows}{outs}"
        y = product(subscripts, x, kernel, self.spec, jnp.dtype(self.spec.compute_dtype))
        if not self.use_bias:
            return y
        bias = parameter(self, "bias", tuple(self.outputs), shape_out, nn.initializers.zeros)
        return add_bias(y, bias)
