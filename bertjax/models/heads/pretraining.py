"""The model of pre-training: an encoder, the masked-LM head and the next-sentence head."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.heads.output_heads import masked_lm, pooler
from bertjax.models.layers.dense import Dense
from bertjax.models.layers.pooling import take_positions


def piece_logits(
    model: "PreTrainingModel", vocabulary_size: int, params: Any, batch: Mapping[str, jax.Array]
) -> jax.Array:
    """The logits, float32 [B, P, V], of the vocabulary's V pieces; the model may have more rows."""
    outputs: Mapping[str, jax.Array] = model.apply(  # type: ignore[assignment]  # no `mutable`
        {"params": params}, batch, deterministic=True
    )
    return outputs["masked_lm"][..., :vocabulary_size]


class PreTrainingModel(nn.Module):
    """An encoder with the heads of BERT's section 3.1."""

    spec: EncoderSpec
    next_sentence: bool = True  # it has the pooler and the next-sentence head (Table 5)

    def setup(self) -> None:
        spec = self.spec
        self.encoder = make_encoder(spec)
        self.masked_lm = masked_lm(spec)
        if self.next_sentence:
            self.pooler = pooler(spec, head_types.PRE_TRAINING)
            self.next_sentence_head = Dense(
                {axes.EMBED_OUT: spec.hidden_size},
                {axes.CLASSES: 2},
                nn.initializers.truncated_normal(spec.initializer_range),
                spec.precision.exact,
            )

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Logits in float32: "masked_lm" [B, P, V]; "next_sentence" [B, 2] if it has that head.

        The inputs may have "masked_lm_positions", int [B, P]; without it, P = S.
        """
        states = self.encoder(inputs, deterministic=deterministic)
        return self.predictions(states, inputs, deterministic)

    def predictions(
        self, states: jax.Array, inputs: Mapping[str, jax.Array], deterministic: bool
    ) -> dict[str, jax.Array]:
        """The outputs of the heads for states [B, S, D] of the encoder."""
        positions = inputs.get("masked_lm_positions")
        predicted = states if positions is None else take_positions(states, positions)
        logits = {"masked_lm": self.masked_lm(predicted, self.encoder.token_embedding)}
        if self.next_sentence:
            vector = self.pooler(states, inputs["input_mask"], deterministic)
            logits["next_sentence"] = self.next_sentence_head(vector)
        return logits
