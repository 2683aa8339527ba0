"""What may follow the pooling of a text's tokens: products, normalizations (EmbeddingGemma, LaBSE).

dense       a product, perhaps with a bias, and an activation function
layer_norm  layer normalization
normalize   to length 1
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.limits import CountOrNone, check_limits
from bertjax.models.layers.dense import Dense
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.similarity import normalized

PRODUCT, LAYER_NORM, NORMALIZE = KINDS = ("dense", "layer_norm", "normalize")
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "gelu": partial(jax.nn.gelu, approximate=False),
    **{
        function.__name__: function
        for function in (
            *(jax.nn.relu, jax.nn.relu6, jax.nn.leaky_relu, jax.nn.elu, jax.nn.selu, jax.nn.celu),
            *(jax.nn.silu, jax.nn.mish, jax.nn.sigmoid, jax.nn.log_sigmoid, jax.nn.softplus),
            *(jax.nn.soft_sign, jax.nn.hard_tanh, jax.nn.hard_sigmoid, jax.nn.hard_silu),
        )
    },
}
_EPS = 1e-5  # PyTorch's


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorModule:
    """A module after the pooling.

    Attributes:
      kind: "dense", "layer_norm" or "normalize".
      width: of "dense", how many numbers it gives.
      bias: of "dense", whether it has one.
      activation: of "dense", a key of `bertjax.models.heads.vector_modules.ACTIVATIONS`.

    Raises:
      ValueError: a value is none of these, or a "dense" has no width.
    """

    kind: str = PRODUCT
    width: CountOrNone = 0
    bias: bool = True
    activation: str = "identity"

    def __post_init__(self):
        check_limits(self, kind=KINDS, activation=tuple(ACTIVATIONS))
        if (self.kind == PRODUCT) != bool(self.width):
            raise ValueError(f"width={self.width}: a dense module has one above 0, others have 0")

    @property
    def in_words(self) -> str:
        """What it is: "dense to 16 with tanh"."""
        return f"{self.kind} to {self.width} with {self.activation}" if self.width else self.kind


class AfterPooling(nn.Module):
    """The modules after the pooling, in their order: [..., D] -> [..., D']."""

    modules: tuple[VectorModule, ...]
    initializer_range: float = 0.02

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = nn.initializers.normal(self.initializer_range)
        for number, module in enumerate(self.modules):
            if module.kind == NORMALIZE:
                x = normalized(x)
            elif module.kind == LAYER_NORM:
                x = LayerNorm(axes.EMBED, _EPS, name=name_of(number))(x)
            else:
                sides = {axes.EMBED: x.shape[-1]}, {axes.EMBED_OUT: module.width}
                dense = Dense(*sides, init, use_bias=module.bias, name=name_of(number))
                x = ACTIVATIONS[module.activation](dense(x))
        return x


def name_of(number: int) -> str:
    """The name of a module's parameters."""
    return f"module_{number}"


def widths(modules: Sequence[VectorModule], width: int) -> list[int]:
    """The width of the vectors before each module, and after the last."""
    found = [width]
    for module in modules:
        found.append(module.width or found[-1])
    return found
