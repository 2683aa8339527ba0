"""XLM's heads: the decoder, and the vector of one token, which has no parameters of its own."""

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.xlm.spec import XlmSpec
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import parameter
from bertjax.models.layers.pooling import one_token


class OneToken(nn.Module):
    """The vector of the first token; or of the last one, if the encoder reads left to right."""

    spec: XlmSpec

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]. Returns [B, D]."""
        del deterministic
        return one_token(states, mask, self.spec.causal)


def readout(spec: XlmSpec, kind: str) -> OneToken:
    """The vector of one token, for all kinds of models."""
    del kind
    return OneToken(spec, name="one_token")


class LanguageModel(nn.Module):
    """The decoder, tied to the embeddings, with a bias: [B, P, D] -> logits [B, P, V], float32."""

    spec: XlmSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, D]."""
        spec, zeros = self.spec, nn.initializers.zeros
        bias = parameter(self, "bias", (axes.VOCAB,), (spec.padded_vocab_size,), zeros)
        return decode(
            x, token_embedding, bias, vocab_size=spec.vocab_size, precision=spec.precision
        )
