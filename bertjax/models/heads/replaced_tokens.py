"""The discriminator of ELECTRA (arXiv 2003.10555): which tokens are not the text's own."""

from collections.abc import Mapping

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense


class ReplacedTokens(nn.Module):
    """Dense, activation, dense: [B, S, D] -> logits [B, S], float32, above 0 for "replaced"."""

    spec: EncoderSpec

    @nn.compact
    def __call__(self, states: jax.Array) -> jax.Array:
        spec, width = self.spec, self.spec.hidden_size
        init = nn.initializers.truncated_normal(spec.initializer_range)
        sides = {axes.EMBED: width}, {axes.EMBED_OUT: width}
        x = activation(spec.hidden_act, Dense(*sides, init, spec.precision, name="dense")(states))
        sides = {axes.EMBED_OUT: width}, {axes.CLASSES: 1}
        return Dense(*sides, init, spec.precision.exact, name="output")(x)[..., 0]


class Discriminator(nn.Module):
    """An encoder of any family with the head `ReplacedTokens`."""

    spec: EncoderSpec

    def setup(self) -> None:
        self.encoder = make_encoder(self.spec)
        self.replaced_tokens = ReplacedTokens(self.spec)

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Returns "replaced": logits [B, S]."""
        states = self.encoder(inputs, deterministic=deterministic)
        return {"replaced": self.replaced_tokens(states)}
