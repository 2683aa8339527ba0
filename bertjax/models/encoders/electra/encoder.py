"""ELECTRA's encoder (arXiv 2003.10555, section 2): BERT's, with projected embeddings."""

from collections.abc import Mapping

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.electra.spec import ElectraSpec
from bertjax.models.layers.dense import Dense


class Electra(Bert):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: ElectraSpec

    def setup(self) -> None:
        super().setup()
        spec = self.spec
        if spec.embedding_size != spec.hidden_size:
            init = nn.initializers.truncated_normal(spec.initializer_range)
            sides = {axes.EMBED: spec.embedding_size}, {axes.EMBED_OUT: spec.hidden_size}
            self.projection = Dense(*sides, init, spec.precision)

    def embed(self, inputs: Mapping[str, jax.Array], deterministic: bool) -> jax.Array:
        """The embeddings, as wide as the layers: [B, S, D]."""
        x = self.embeddings(inputs, deterministic)
        return x if self.spec.embedding_size == self.spec.hidden_size else self.projection(x)
