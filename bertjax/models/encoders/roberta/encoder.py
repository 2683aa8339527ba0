"""RoBERTa (arXiv 1907.11692): BERT with positions that begin after the id of the padding."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from bertjax.models.encoders.bert.embeddings import Embeddings
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.roberta.spec import RobertaSpec
from bertjax.models.layers.embedding import look_up
from bertjax.models.layers.positions import positions_of


class RobertaEmbeddings(Embeddings):
    """BERT's, with positions that count the tokens and no padding (fairseq `make_positions`)."""

    spec: RobertaSpec

    def positions(self, inputs: Mapping[str, jax.Array]) -> jax.Array:
        """The embeddings of the positions, [B, S, E]; that of padding is the row of its id."""
        mask = inputs["input_mask"].astype(jnp.int32)
        if "position_ids" in inputs:
            counted = inputs["position_ids"] + 1
        elif "segment_ids" in inputs:
            counted = positions_of(inputs["segment_ids"]) + 1
        else:
            counted = jnp.cumsum(mask, axis=1)
        return look_up(self.position, counted * mask + self.spec.pad_token_id)


class Roberta(Bert):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: RobertaSpec

    def make_embeddings(self) -> Embeddings:
        """See `Bert`."""
        return RobertaEmbeddings(self.spec)
