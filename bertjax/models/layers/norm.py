"""Layer normalization, and that by the root mean square."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.models.layers.dense import parameter


class LayerNorm(nn.Module):
    """Layer normalization over the last axis (D), of that logical axis; statistics in float32."""

    axis: str
    eps: float
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        scale = parameter(self, "scale", (self.axis,), shape, nn.initializers.ones)
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        variance = jnp.maximum(jnp.square(wide).mean(-1, keepdims=True) - jnp.square(mean), 0)
        normal = (wide - mean) * jax.lax.rsqrt(variance + self.eps)
        y = normal * scale
        if self.use_bias:
            y += parameter(self, "bias", (self.axis,), shape, nn.initializers.zeros)
        return y.astype(x.dtype)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * scale over the last axis (arXiv 1910.07467); a float32 mean."""

    axis: str
    eps: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = parameter(self, "scale", (self.axis,), x.shape[-1:], nn.initializers.ones)
        wide = x.astype(jnp.float32)
        square = jnp.square(wide).mean(-1, keepdims=True)
        return (wide * jax.lax.rsqrt(square + self.eps) * scale).astype(x.dtype)
