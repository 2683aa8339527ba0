"""The encoder with the heads of fine-tuning (section 4, Figure 4), and alone.

Each takes int [B, S] input_ids, input_mask and token_type_ids and returns {name: float32 array}.

The class of a whole text is read from the encoder's [CLS]; left to right, where [CLS] sees no other
token, from the last token, the final [SEP] (as in GPT; Radford et al., 2018). With a BiLSTM over
the encoder (section 5.1, Table 5, "+ BiLSTM") it is read from the last states of both directions,
each of which has read the whole text. The BiLSTM stands in the place of the pooler and of all else
that is between the encoder and the output layer.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders import kinds
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of, make_encoder
from bertjax.heads.bilstm import BiLstm
from bertjax.heads.pretraining import gather_positions
from bertjax.layers.dense import Dense, exact, normal
from bertjax.layers.dropout import Dropout

BILSTM = "bilstm"  # the part between the encoder and the output layer
OUTPUT_LAYERS = ("classifier", "span")  # the parts whose outputs are what a task asks for


def _token_head(spec: EncoderSpec, bilstm: BiLstm | None) -> nn.Module | None:
    """The layers between the encoder and the output layer of a head of tokens, if any."""
    head = None if bilstm else family_of(spec).token_head
    return head(spec) if head else None


def _last_token(sequence: jax.Array, input_mask: jax.Array) -> jax.Array:
    """The last token before the padding: [B, S, D] -> [B, 1, D]."""
    return gather_positions(sequence, input_mask.sum(-1, keepdims=True) - 1)


class EncoderModel(nn.Module):
    """The encoder: "sequence" [B, S, D]; and "pooled" [B, D] in families where it has a pooler."""

    spec: EncoderSpec

    def setup(self):
        family = family_of(self.spec)
        self.encoder = make_encoder(self.spec)
        self.pools = "pooler" in family.heads[kinds.ENCODER]
        if self.pools:
            self.pooler = family.pooler(self.spec)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        sequence = self.encoder(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        outputs = {"sequence": sequence}
        if self.pools:
            outputs["pooled"] = self.pooler(sequence, input_mask)
        return {name: output.astype(jnp.float32) for name, output in outputs.items()}


class _Model(nn.Module):
    """This is common to the models of all tasks.

    Attributes:
      spec: of the encoder.
      num_classes: C, the width of the output layer.
      bilstm: over the encoder; None: there is none.
    """

    spec: EncoderSpec
    num_classes: int
    bilstm: BiLstm | None = None

    def setup(self):
        self.encoder = make_encoder(self.spec)
        self.dropout = Dropout(self.spec)

    def states(self, input_ids, input_mask, token_type_ids, deterministic: bool) -> jax.Array:
        """The output of the encoder, [B, S, D]; or of the BiLSTM, [B, S, 2 H]."""
        states = self.encoder(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        if self.bilstm:
            states = self.bilstm(states, input_mask, deterministic=deterministic)
        return states

    def output_layer(self) -> Dense:
        """The only new parameters of a task (section 4.1), besides a BiLSTM."""
        width = 2 * self.bilstm.hidden if self.bilstm else self.spec.hidden_size
        outputs = {axes.CLASSES: self.num_classes}
        return Dense(exact(self.spec), {axes.EMBED_OUT: width}, outputs, normal)


class SequenceClassifier(_Model):
    """One text or a pair of them, into classes or a number: "logits" [B, C] (Figure 4a, b)."""

    def setup(self):
        super().setup()
        if not self.bilstm:
            self.pooler = family_of(self.spec).pooler(self.spec)
        self.classifier = self.output_layer()

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        states = self.states(input_ids, input_mask, token_type_ids, deterministic)
        pooled = self.dropout(self._pooled(states, input_mask), deterministic)
        return {"logits": self.classifier(pooled)}

    def _pooled(self, states: jax.Array, input_mask: jax.Array) -> jax.Array:
        """The vector that speaks for the whole text: [B, S, W] -> [B, W]."""
        if self.bilstm:
            forward, backward = jnp.split(states, 2, -1)
            return jnp.concatenate([_last_token(forward, input_mask)[:, 0], backward[:, 0]], -1)
        if self.spec.causal:  # for the pooler, the last token is all of the text
            states, input_mask = _last_token(states, input_mask), input_mask[:, :1]
        return self.pooler(states, input_mask)


class ChoiceScorer(SequenceClassifier):
    """One score for each choice (section 4.4): three arrays [B, C, S] -> "logits" [B, C]."""

    num_classes: int = 1

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        flat = [x.reshape(-1, x.shape[-1]) for x in (input_ids, input_mask, token_type_ids)]
        scores = super().__call__(*flat, deterministic=deterministic)["logits"]
        return {"logits": scores.reshape(input_ids.shape[:2])}


class TokenClassifier(_Model):
    """A class for each token: "logits" [B, S, C] (Figure 4d)."""

    def setup(self):
        super().setup()
        self.token_head = _token_head(self.spec, self.bilstm)
        self.classifier = self.output_layer()

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        states = self.states(input_ids, input_mask, token_type_ids, deterministic)
        if self.token_head:
            states = self.token_head(states)
        return {"logits": self.classifier(self.dropout(states, deterministic))}


class SpanFinder(_Model):
    """Start and end of the answer's span: "start", "end" [B, S] (section 4.2, Figure 4c)."""

    num_classes: int = 2

    def setup(self):
        super().setup()
        self.token_head = _token_head(self.spec, self.bilstm)
        self.span = self.output_layer()

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        states = self.states(input_ids, input_mask, token_type_ids, deterministic)
        if self.token_head:  # dropout stands behind it; BERT's encoder has it in its last layer
            states = self.dropout(self.token_head(states), deterministic)
        start, end = jnp.moveaxis(self.span(states), -1, 0)
        return {"start": start, "end": end}
