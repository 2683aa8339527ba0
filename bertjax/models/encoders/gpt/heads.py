"""The heads of GPT and GPT-2, which have no parameters of their own before the output layer."""

import jax
from flax import linen as nn

from bertjax.models.encoders.gpt.spec import GptSpec
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.pooling import last_token


class LastToken(nn.Module):
    """The vector of the last token, the only one that has seen the whole text."""

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]. Returns [B, D]."""
        del deterministic
        return last_token(states, mask)


def readout(spec: GptSpec, kind: str) -> LastToken:
    """The last token, for all kinds of models."""
    del spec, kind
    return LastToken(name="last_token")


class LanguageModel(nn.Module):
    """The decoder, tied to the embeddings, without bias: [B, P, D] -> logits [B, P, V], float32."""

    spec: GptSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, D]."""
        spec = self.spec
        return decode(
            x, token_embedding, None, vocab_size=spec.vocab_size, precision=spec.precision
        )
