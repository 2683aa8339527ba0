"""GPT and GPT-2: BERT's blocks over embeddings of tokens and positions alone."""

from collections.abc import Mapping

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.bert.embeddings import Embeddings
from bertjax.encoders.bert.encoder import Bert
from bertjax.encoders.gpt.spec import Gpt2Spec, GptSpec
from bertjax.layers.dropout import Dropout
from bertjax.layers.embedding import look_up
from bertjax.layers.norm import LayerNorm


class GptEmbeddings(Embeddings):
    """The sum of token and position embeddings, which is not normalized."""

    spec: GptSpec

    def setup(self) -> None:
        spec = self.spec
        self.token = self.table(
            "token", axes.VOCAB, spec.padded_vocab_size, spec.precision.gathered_as
        )
        self.position = self.table("position", axes.POSITIONS, spec.position_rows)
        self.dropout = Dropout(spec.hidden_dropout_prob)

    def __call__(self, inputs: Mapping[str, jax.Array], deterministic: bool) -> jax.Array:
        x = look_up(self.token, inputs["input_ids"]) + self.positions(inputs)
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        return self.dropout(x, deterministic).astype(self.spec.compute_dtype)


class Gpt(Bert):
    """The encoder: see `bertjax.encoders.contract.EncoderFamily`."""

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
