"""The discriminator of ELECTRA (arXiv 2003.10555): which tokens are not the text's own."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of, make_encoder
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.models.encoders.transformer import norm
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense
from bertjax.models.layers.pooling import take_positions
from bertjax.models.layers.positions import positions_of


class ReplacedTokens(nn.Module):
    """Dense, activation, dense: [B, S, D] -> logits [B, S], float32, above 0 for "replaced".

    With `context_norm` of the family, a norm comes first (DeBERTaV3's code, microsoft/DeBERTa).
    """

    spec: EncoderSpec

    @nn.compact
    def __call__(self, states: jax.Array, segment_ids: jax.Array | None = None) -> jax.Array:
        """segment_ids: int [B, S], of packed documents."""
        spec, width = self.spec, self.spec.hidden_size
        if family_of(spec).context_norm:
            assert isinstance(spec, TransformerSpec)
            states = norm(spec, "norm")(states + _first_states(states, segment_ids))
        init = nn.initializers.truncated_normal(spec.initializer_range)
        sides = {axes.EMBED: width}, {axes.EMBED_OUT: width}
        x = activation(spec.hidden_act, Dense(*sides, init, spec.precision, name="dense")(states))
        sides = {axes.EMBED_OUT: width}, {axes.CLASSES: 1}
        return Dense(*sides, init, spec.precision.exact, name="output")(x)[..., 0]


def _first_states(states: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """For each token, the state of the first one of its row, or of its document: [B, S, D]."""
    if segment_ids is None:
        return states[:, :1]
    return take_positions(states, jnp.arange(states.shape[1]) - positions_of(segment_ids))


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
        return {"replaced": self.replaced_tokens(states, inputs.get("segment_ids"))}
