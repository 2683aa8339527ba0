"""The pieces every part of the model is made of: dense product, layer norm, activation, dropout."""

import functools
from collections.abc import Sequence

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


class Dense(nn.Module):
    """x [..., *inputs] -> [..., *outputs]: a product over the last axes, and a bias.

    Attributes:
      inputs, outputs: logical axis -> size, of the kernel's two sides.
    """

    spec: BertSpec
    inputs: dict[str, int]
    outputs: dict[str, int]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = jnp.dtype(self.spec.compute_dtype)
        shape_in, shape_out = tuple(self.inputs.values()), tuple(self.outputs.values())
        axes = (*self.inputs, *self.outputs)
        kernel = parameter(self, "kernel", axes, shape_in + shape_out, truncated_normal(self.spec))
        bias = parameter(self, "bias", tuple(self.outputs), shape_out, nn.initializers.zeros)
        n = len(shape_in)
        y = jax.lax.dot_general(
            x.astype(dtype),
            kernel.astype(dtype),
            ((tuple(range(x.ndim - n, x.ndim)), tuple(range(n))), ((), ())),
        )
        return y + bias.astype(dtype)


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
        centred = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + self.spec.layer_norm_eps)
        return (normal * scale + bias).astype(x.dtype)


@functools.partial(jax.checkpoint, static_argnums=0)
def activation(spec: BertSpec, x: jax.Array) -> jax.Array:
    """gelu, in its erf or its tanh form; recomputed in the backward pass, not stored."""
    return jax.nn.gelu(x, approximate=spec.hidden_act == "gelu_tanh")


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
