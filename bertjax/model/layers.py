"""The pieces every part of the model is made of: dense product, layer norm, activation, dropout."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.model.dropout import dropout
from bertjax.model.spec import BertSpec


def parameter(module: nn.Module, name: str, axes: Sequence[str], shape, init) -> jax.Array:
    """A float32 parameter with a logical axis (`bertjax.axes`) for each dimension."""
    return module.param(
        name, nn.with_logical_partitioning(init, tuple(axes)), tuple(shape), jnp.float32
    )


def truncated_normal(spec: BertSpec):
    """The reference's initializer: normal cut at two sigmas (modeling.py, create_initializer).

    Cut, not rescaled: the deviation that results is 0.88 of `initializer_range`, as there.
    """
    return nn.initializers.truncated_normal(spec.initializer_range)


def normal(spec: BertSpec):
    """That of transformers, and so of most published fine-tuning: normal, not cut."""
    return nn.initializers.normal(spec.initializer_range)


def exact(spec: BertSpec) -> BertSpec:
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


def product(subscripts: str, x: jax.Array, kernel: jax.Array, spec: BertSpec, dtype) -> jax.Array:
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
      kernel_init: of a `BertSpec`, the kernel's initializer.
    """

    spec: BertSpec
    inputs: dict[str, int]
    outputs: dict[str, int]
    kernel_init: Callable[[BertSpec], nn.initializers.Initializer] = truncated_normal

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape_in, shape_out = tuple(self.inputs.values()), tuple(self.outputs.values())
        axes = (*self.inputs, *self.outputs)
        kernel_init = self.kernel_init(self.spec)
        kernel = parameter(self, "kernel", axes, shape_in + shape_out, kernel_init)
        bias = parameter(self, "bias", tuple(self.outputs), shape_out, nn.initializers.zeros)
        rows, ins, outs = "abc"[: x.ndim - len(shape_in)], "ij"[: len(shape_in)], "opq"[: bias.ndim]
        subscripts = f"{rows}{ins},{ins}{outs}->{rows}{outs}"
        y = product(subscripts, x, kernel, self.spec, jnp.dtype(self.spec.compute_dtype))
        return add_bias(y, bias)


class LayerNorm(nn.Module):
    """Layer normalization over the last axis (D), with statistics in float32."""

    spec: BertSpec
    axis: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        scale = parameter(self, "scale", (self.axis,), shape, nn.initializers.ones)
        bias = parameter(self, "bias", (self.axis,), shape, nn.initializers.zeros)
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        variance = jnp.maximum(jnp.square(wide).mean(-1, keepdims=True) - jnp.square(mean), 0)
        normal = (wide - mean) * jax.lax.rsqrt(variance + self.spec.layer_norm_eps)
        return (normal * scale + bias).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def activation(spec: BertSpec, x: jax.Array) -> jax.Array:
    """gelu, in its erf or its tanh form; of it only x is kept for the backward pass."""
    return _with_slope(spec, x)[0]


def _with_slope(spec: BertSpec, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    gelu = functools.partial(jax.nn.gelu, approximate=spec.hidden_act == "gelu_tanh")
    with jax.named_scope("activation"):
        return jax.jvp(gelu, (x,), (jnp.ones_like(x),))


activation.defvjp(
    lambda spec, x: (activation(spec, x), x),
    lambda spec, x, gradient: (_with_slope(spec, x)[1] * gradient,),
)


def dropout_seed(module: nn.Module) -> jax.Array:
    """A fresh uint32 seed from the module's "dropout" stream."""
    return jax.random.bits(module.make_rng("dropout"), (), jnp.uint32)


class Dropout(nn.Module):
    """Hidden dropout (`hidden_dropout_prob`); the identity when deterministic."""

    spec: BertSpec

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        rate = self.spec.hidden_dropout_prob
        if deterministic or not rate:
            return x
        return dropout(x, dropout_seed(self), rate)
