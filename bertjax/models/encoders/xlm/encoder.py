"""XLM (arXiv 1901.07291): BERT's blocks, with embeddings of languages, and padding that is 0."""

from collections.abc import Mapping

import jax

from bertjax.models.encoders.bert.embeddings import Embeddings
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.xlm.spec import XlmSpec


class XlmEmbeddings(Embeddings):
    """BERT's, where languages are the token types, and a batch may have none."""

    spec: XlmSpec

    def segments(self, inputs: Mapping[str, jax.Array]) -> jax.Array | float:
        """The embeddings of the languages, [B, S, E]."""
        if "language_ids" not in inputs:
            return 0.0
        return super().segments({"token_type_ids": inputs["language_ids"]})


class Xlm(Bert):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: XlmSpec

    def make_embeddings(self) -> Embeddings:
        """See `Bert`."""
        return XlmEmbeddings(self.spec)

    def _states(
        self, inputs: Mapping[str, jax.Array], deterministic: bool, *, all_layers: bool
    ) -> list[jax.Array]:
        mask = inputs["input_mask"][:, :, None]
        states = super()._states(inputs, deterministic, all_layers=all_layers)
        return [x * mask.astype(x.dtype) for x in states]
