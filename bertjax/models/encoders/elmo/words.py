"""The vector of a word from its characters: convolutions, highways, a projection.

As bilm-tf (bilm/model.py, `_build_word_char_embeddings`), after Kim et al. (arXiv 1508.06615) and
Jozefowicz et al. (arXiv 1602.02410).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.fields import NUM_CHARACTERS
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.layers.dense import Dense, parameter

_CARRY_BIAS = -2.0  # at first a highway lets its input pass


class CharacterConvolutions(nn.Module):
    """Words [B, S, W] as ids of characters -> the maxima of all convolutions, [B, S, filters]."""

    spec: ElmoSpec

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        spec = self.spec
        shape = (NUM_CHARACTERS - 1, spec.character_size)
        table = parameter(self, "characters", (axes.CHARACTERS, axes.EMBED), shape, _symmetric(1.0))
        # Id 0 pads a text. Its vector is 0, and no parameter.
        x = jnp.pad(table, [(1, 0), (0, 0)]).astype(spec.compute_dtype)[characters]
        rows, activate = x.reshape(-1, *x.shape[2:]), getattr(jax.nn, spec.hidden_act)
        found = []
        for number, (width, count) in enumerate(spec.filters):
            if spec.hidden_act == "relu":
                init = _symmetric(0.05)
            else:
                init = nn.initializers.normal((width * spec.character_size) ** -0.5)
            names = axes.CHARACTERS, axes.EMBED, axes.MLP
            sizes = width, spec.character_size, count
            kernel = parameter(self, f"kernel_{number}", names, sizes, init)
            bias = parameter(self, f"bias_{number}", (axes.MLP,), (count,), nn.initializers.zeros)
            y = jax.lax.conv_general_dilated(
                rows, kernel.astype(x.dtype), (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
            )
            found.append(activate(y.max(1) + bias.astype(x.dtype)))
        return jnp.concatenate(found, -1).reshape(*x.shape[:2], spec.num_filters)


def _symmetric(bound: float) -> Callable[..., jax.Array]:
    init = nn.initializers.uniform(2 * bound)
    return lambda *arguments: init(*arguments) - bound


class Highway(nn.Module):
    """A gate chooses between x and what a dense layer makes of it (arXiv 1505.00387)."""

    spec: ElmoSpec

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: [B, S, filters]."""
        sides = {axes.EMBED: x.shape[-1]}, {axes.MLP: x.shape[-1]}
        init = nn.initializers.normal(x.shape[-1] ** -0.5)
        open_first = nn.initializers.constant(_CARRY_BIAS)
        gate = jax.nn.sigmoid(
            Dense(*sides, init, self.spec.precision, bias_init=open_first, name="gate")(x)
        )
        made = jax.nn.relu(Dense(*sides, init, self.spec.precision, name="transform")(x))
        return gate * made + (1 - gate) * x


class WordVectors(nn.Module):
    """Words [B, S, W] as ids of characters -> [B, S, P]."""

    spec: ElmoSpec

    @nn.compact
    def __call__(self, characters: jax.Array) -> jax.Array:
        spec = self.spec
        x = CharacterConvolutions(spec, name="convolutions")(characters)
        for number in range(spec.num_highways):
            x = Highway(spec, name=f"highway_{number}")(x)
        if spec.num_filters == spec.projection_size:
            return x
        sides = {axes.MLP: spec.num_filters}, {axes.EMBED: spec.projection_size}
        init = nn.initializers.normal(spec.num_filters**-0.5)
        return Dense(*sides, init, spec.precision, name="projection")(x)
