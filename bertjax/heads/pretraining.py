"""The model of pre-training: an encoder, the masked-LM head and the next-sentence head."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of, make_encoder
from bertjax.layers.dense import Dense, exact


def gather_positions(sequence: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at positions [B, P] -> [B, P, D].

    A product with a one-hot matrix: exact, shards along B, and its gradient is a product too.
    """
    one_hot = jax.nn.one_hot(positions, sequence.shape[1], dtype=sequence.dtype)
    return jnp.einsum("bps,bsd->bpd", one_hot, sequence, precision=jax.lax.Precision.HIGHEST)


class PreTrainingModel(nn.Module):
    """An encoder with the heads of BERT's section 3.1.

    Attributes:
      spec: of the encoder.
      next_sentence: with the pooler and the next-sentence head, or without (Table 5).
    """

    spec: EncoderSpec
    next_sentence: bool = True

    def setup(self):
        spec, family = self.spec, family_of(self.spec)
        self.encoder = make_encoder(spec)
        self.masked_lm = family.masked_lm(spec)
        if self.next_sentence:
            self.pooler = family.pooler(spec)
            self.next_sentence_head = Dense(
                exact(spec), {axes.EMBED_OUT: spec.hidden_size}, {axes.CLASSES: 2}
            )

    def __call__(
        self,
        input_ids: jax.Array,
        input_mask: jax.Array,
        token_type_ids: jax.Array,
        positions: jax.Array | None = None,
        documents: jax.Array | None = None,
        *,
        deterministic: bool,
    ) -> dict[str, jax.Array]:
        """Logits in float32.

        Args:
          input_ids, input_mask, token_type_ids: int [B, S].
          positions: int [B, P], where to predict tokens; None for every position (P = S).
          documents: int [B, S], the number of the document, of those packed into a row, to which
            each token belongs (`bertjax.base.fields.DOCUMENTS`); None where a row is one document.
          deterministic: no dropout.

        Returns:
          "masked_lm": [B, P, V]; "next_sentence": [B, 2] if the model has that head.
        """
        sequence = self.encoder(
            input_ids,
            input_mask,
            token_type_ids,
            documents=documents,
            deterministic=deterministic,
        )
        hidden = sequence if positions is None else gather_positions(sequence, positions)
        logits = {"masked_lm": self.masked_lm(hidden, self.encoder.token_embedding)}
        if self.next_sentence:
            logits["next_sentence"] = self.next_sentence_head(self.pooler(sequence, input_mask))
        return logits
