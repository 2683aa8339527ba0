"""What is predicted from the encoder's output in pre-training."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax import axes
from bertjax.model.bert import Bert, Pooler
from bertjax.model.layers import Dense, LayerNorm, activation, exact, parameter, product
from bertjax.model.spec import BertSpec


def gather_positions(sequence: jax.Array, positions: jax.Array) -> jax.Array:
    """[B, S, D] at positions [B, P] -> [B, P, D].

    A product with a one-hot matrix: exact, shards along B, and its gradient is a product too.
    """
    one_hot = jax.nn.one_hot(positions, sequence.shape[1], dtype=sequence.dtype)
    return jnp.einsum("bps,bsd->bpd", one_hot, sequence, precision=jax.lax.Precision.HIGHEST)


class MaskedLanguageModel(nn.Module):
    """Transform, then the tied decoder: [B, P, D] -> logits [B, P, V], float32.

    The rows that pad the vocabulary get the lowest logit, so that they change no loss.
    """

    spec: BertSpec

    @nn.compact
    def __call__(self, hidden: jax.Array, token_embedding: jax.Array) -> jax.Array:
        spec, width = self.spec, self.spec.hidden_size
        dense = Dense(spec, {axes.EMBED: width}, {axes.EMBED_OUT: width}, name="transform")
        hidden = LayerNorm(spec, axes.EMBED_OUT, name="norm")(activation(spec, dense(hidden)))
        bias = parameter(
            self, "bias", (axes.VOCAB,), (spec.padded_vocab_size,), nn.initializers.zeros
        )
        logits = product("bpd,vd->bpv", hidden, token_embedding, spec, jnp.dtype("float32"))
        logits = nn.with_logical_constraint(
            logits + bias, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_VOCAB)
        )
        if spec.padded_vocab_size == spec.vocab_size:
            return logits
        real = jnp.arange(spec.padded_vocab_size) < spec.vocab_size
        return jnp.where(real, logits, jnp.finfo(jnp.float32).min)


class BertForPreTraining(nn.Module):
    """BERT with the heads of section 3.1.

    Attributes:
      spec: the model.
      next_sentence: with the pooler and the next-sentence head, or without (Table 5).
    """

    spec: BertSpec
    next_sentence: bool = True

    def setup(self):
        spec = self.spec
        self.bert = Bert(spec)
        self.masked_lm = MaskedLanguageModel(spec)
        if self.next_sentence:
            self.pooler = Pooler(spec)
            self.next_sentence_head = Dense(
                exact(spec), {axes.EMBED_OUT: spec.hidden_size}, {axes.CLASSES: 2}
            )

    def __call__(
        self,
        input_ids: jax.Array,
        input_mask: jax.Array,
        segment_ids: jax.Array,
        positions: jax.Array | None = None,
        *,
        deterministic: bool,
    ) -> dict[str, jax.Array]:
        """Logits in float32.

        Args:
          input_ids, input_mask, segment_ids: int [B, S].
          positions: int [B, P], where to predict tokens; None for every position (P = S).
          deterministic: no dropout.

        Returns:
          "masked_lm": [B, P, V]; "next_sentence": [B, 2] if the model has that head.
        """
        sequence = self.bert(input_ids, input_mask, segment_ids, deterministic=deterministic)
        hidden = sequence if positions is None else gather_positions(sequence, positions)
        logits = {"masked_lm": self.masked_lm(hidden, self.bert.token_embedding)}
        if self.next_sentence:
            logits["next_sentence"] = self.next_sentence_head(self.pooler(sequence))
        return logits
