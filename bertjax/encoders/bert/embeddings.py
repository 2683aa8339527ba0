"""The input of BERT (section 3, Figure 2)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.bert.spec import BertSpec
from bertjax.layers.dense import parameter, truncated_normal
from bertjax.layers.dropout import Dropout
from bertjax.layers.embedding import look_up, token_table
from bertjax.layers.norm import LayerNorm
from bertjax.layers.positions import positions_of


class Embeddings(nn.Module):
    """The sum of token, segment and position embeddings, normalized (Figure 2)."""

    spec: BertSpec

    def setup(self):
        spec, width = self.spec, self.spec.hidden_size
        init = truncated_normal(spec)
        self.token = token_table(self, init)
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

    def __call__(
        self, input_ids, token_type_ids, documents: jax.Array | None, deterministic: bool
    ) -> jax.Array:
        length = input_ids.shape[1]
        x = look_up(self.token, input_ids)  # [B, S, D]
        # A product, because the gradient of a look-up in a table of two rows is a slow scatter.
        one_hot = jax.nn.one_hot(token_type_ids, self.spec.type_vocab_size)
        x += jnp.matmul(one_hot, self.segment, precision=jax.lax.Precision.HIGHEST)
        if documents is None:
            x += self.position[:length]
        else:
            x += self.position[positions_of(documents)]
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        x = self.dropout(self.norm(x), deterministic)
        return x.astype(self.spec.compute_dtype)
