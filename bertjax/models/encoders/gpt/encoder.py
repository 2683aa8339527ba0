"""GPT and GPT-2: BERT's blocks over embeddings of tokens and positions alone."""

from collections.abc import Mapping

import jax

from bertjax.base import axes
from bertjax.models.encoders.bert.embeddings import Embeddings
from bertjax.models.encoders.bert.encoder import Bert
from bertjax.models.encoders.gpt.spec import Gpt2Spec, GptSpec
from bertjax.models.layers.norm import LayerNorm


class GptEmbeddings(Embeddings):
    """The sum of token and position embeddings, which is not normalized."""

    spec: GptSpec

    def normalized(self, x: jax.Array) -> jax.Array:
        """The sum as it is: the norm has no parameters, because it is never called."""
        return x


class Gpt(Bert):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: GptSpec

    def make_embeddings(self) -> Embeddings:
        """See `Bert`."""
        return GptEmbeddings(self.spec)


class Gpt2(Gpt):
    """The encoder, whose last output is normalized."""

    spec: Gpt2Spec

    def setup(self) -> None:
        super().setup()
        self.final_norm = LayerNorm(axes.EMBED, self.spec.layer_norm_eps)

    def _states(
        self, inputs: Mapping[str, jax.Array], deterministic: bool, *, all_layers: bool
    ) -> list[jax.Array]:
        *before, last = super()._states(inputs, deterministic, all_layers=all_layers)
        return [*before, self.final_norm(last)]
