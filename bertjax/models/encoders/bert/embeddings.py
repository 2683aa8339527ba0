"""The input of BERT (section 3, Figure 2)."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.bert.spec import BertSpec
from bertjax.models.layers.dense import parameter
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.embedding import look_up
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.positions import last_positions, positions_of


class Embeddings(nn.Module):
    """The sum of token, token type and position embeddings, normalized (Figure 2)."""

    spec: BertSpec

    def setup(self) -> None:
        spec = self.spec
        gathered_as = spec.precision.gathered_as
        self.token = self.table("token", axes.VOCAB, spec.padded_vocab_size, gathered_as)
        self.position = self.table("position", axes.POSITIONS, spec.position_rows)
        if spec.type_vocab_size:
            self.segment = self.table("segment", axes.SEGMENTS, spec.type_vocab_size)
        self.norm = LayerNorm(axes.EMBED, spec.layer_norm_eps)
        self.dropout = Dropout(spec.hidden_dropout_prob)

    def table(self, name: str, axis: str, rows: int, gathered_as: str = "float32") -> jax.Array:
        """A table of embeddings, [rows, E]."""
        # The normal distribution is cut at two deviations and not rescaled, so that the result has
        # 0.88 of the deviation, as in the reference (modeling.py, create_initializer).
        init = nn.initializers.truncated_normal(self.spec.initializer_range)
        shape = (rows, self.spec.embedding_size)
        return parameter(self, name, (axis, axes.EMBED), shape, init, gathered_as)

    def __call__(self, inputs: Mapping[str, jax.Array], deterministic: bool) -> jax.Array:
        x = look_up(self.token, inputs["input_ids"])  # [B, S, D]
        if self.spec.type_vocab_size:  # 0 in encoders that derive from BERT and read no token types
            x += self.segments(inputs)
        x += self.positions(inputs)
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        x = self.dropout(self.normalized(x), deterministic)
        return x.astype(self.spec.compute_dtype)

    def normalized(self, x: jax.Array) -> jax.Array:
        """The sum of the embeddings, normalized."""
        return self.norm(x)

    def segments(self, inputs: Mapping[str, jax.Array]) -> jax.Array | float:
        """The embeddings of the token types, [B, S, E]."""
        # A product, because the gradient of a look-up in a table of two rows is a slow scatter.
        one_hot = jax.nn.one_hot(inputs["token_type_ids"], self.spec.type_vocab_size)
        return jnp.matmul(one_hot, self.segment, precision=jax.lax.Precision.HIGHEST)

    def positions(self, inputs: Mapping[str, jax.Array]) -> jax.Array:
        """The embeddings of the positions: [S, E], or [B, S, E] where rows differ in them.

        With a cache (`bertjax.models.encoders.cache`), S is 1.
        """
        position_ids, segment_ids = inputs.get("position_ids"), inputs.get("segment_ids")
        length = inputs["input_ids"].shape[1]
        if inputs["input_mask"].shape[1] != length:  # the tokens before are in a cache
            return self.position[last_positions(inputs["input_mask"])]
        if position_ids is not None:
            return self.position[position_ids]
        if segment_ids is None:
            return self.position[:length]
        return self.position[positions_of(segment_ids)]
