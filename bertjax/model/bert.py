"""BERT (section 3): embeddings, encoder, pooler."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax import axes
from bertjax.model.encoder import Encoder
from bertjax.model.layers import Dense, Dropout, LayerNorm, parameter, truncated_normal
from bertjax.model.spec import BertSpec


class Embeddings(nn.Module):
    """The sum of token, segment and position embeddings, normalized (Figure 2)."""

    spec: BertSpec

    def setup(self):
        spec, width = self.spec, self.spec.hidden_size
        init = truncated_normal(spec)
        self.token = parameter(
            self, "token", (axes.VOCAB, axes.EMBED), (spec.padded_vocab_size, width), init
        )
        self.position = parameter(
            self,
            "position",
            (axes.POSITIONS, axes.EMBED),
            (spec.max_position_embeddings, width),
            init,
        )
        self.segment = parameter(
            self, "segment", (axes.SEGMENTS, axes.EMBED), (spec.type_vocab_size, width), init
        )
        self.norm = LayerNorm(spec, axes.EMBED)
        self.dropout = Dropout(spec)

    def __call__(self, input_ids, segment_ids, deterministic: bool) -> jax.Array:
        length = input_ids.shape[1]
        x = self.token[input_ids]  # [B, S, D]
        # A product, because the gradient of a look-up in a table of two rows is a slow scatter.
        one_hot = jax.nn.one_hot(segment_ids, self.spec.type_vocab_size)
        x += jnp.matmul(one_hot, self.segment, precision=jax.lax.Precision.HIGHEST)
        x += self.position[:length]
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        x = self.dropout(self.norm(x), deterministic)
        return x.astype(self.spec.compute_dtype)


class Bert(nn.Module):
    """The encoder with its embeddings; outputs [B, S, D] in the compute dtype."""

    spec: BertSpec

    def setup(self):
        self.embeddings = Embeddings(self.spec)
        self.encoder = Encoder(self.spec)

    def __call__(self, input_ids, input_mask, segment_ids, *, deterministic: bool) -> jax.Array:
        """input_ids, input_mask, segment_ids: int [B, S]. Returns the last layer's [B, S, D]."""
        x = self.embeddings(input_ids, segment_ids, deterministic)
        return self.encoder(x, input_mask, deterministic, all_layers=False)[-1]

    def hidden_states(
        self, input_ids, input_mask, segment_ids, *, deterministic: bool
    ) -> list[jax.Array]:
        """As calling it, but every layer's [B, S, D]: the embeddings, then layers 1 to L."""
        x = self.embeddings(input_ids, segment_ids, deterministic)
        return [x, *self.encoder(x, input_mask, deterministic, all_layers=True)]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token


class Pooler(nn.Module):
    """The [CLS] vector through a dense layer and tanh: [B, S, D] -> [B, D]."""

    spec: BertSpec

    @nn.compact
    def __call__(self, sequence: jax.Array) -> jax.Array:
        width = self.spec.hidden_size
        dense = Dense(self.spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="dense")
        return jnp.tanh(dense(sequence[:, 0]))
