"""The encoder with the heads of fine-tuning (section 4, Figure 4), and alone.

Each takes int [B, S] input_ids, input_mask and token_type_ids and returns {name: float32 array}.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.encoders import kinds
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of, make_encoder
from bertjax.layers.dense import Dense, exact, normal
from bertjax.layers.dropout import Dropout

OUTPUT_LAYERS = ("classifier", "span")  # the parts whose outputs are what a task asks for


def _output_layer(spec: EncoderSpec, width: int) -> Dense:
    """The only new parameters of a task (section 4.1): [..., D] -> [..., width]."""
    return Dense(exact(spec), {axes.EMBED_OUT: spec.hidden_size}, {axes.CLASSES: width}, normal)


def _token_head(spec: EncoderSpec) -> Callable[[jax.Array], jax.Array]:
    """The layers between the encoder and the output layer of a head of tokens, if any."""
    head = family_of(spec).token_head
    return head(spec) if head else lambda sequence: sequence


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


class SequenceClassifier(nn.Module):
    """One text or a pair of them, into classes or a number: "logits" [B, C] (Figure 4a, b)."""

    spec: EncoderSpec
    num_classes: int

    def setup(self):
        self.encoder = make_encoder(self.spec)
        self.pooler = family_of(self.spec).pooler(self.spec)
        self.dropout = Dropout(self.spec)
        self.classifier = _output_layer(self.spec, self.num_classes)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        sequence = self.encoder(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        pooled = self.dropout(self.pooler(sequence, input_mask), deterministic)
        return {"logits": self.classifier(pooled)}


class ChoiceScorer(SequenceClassifier):
    """One score for each choice (section 4.4): three arrays [B, C, S] -> "logits" [B, C]."""

    num_classes: int = 1

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        flat = [x.reshape(-1, x.shape[-1]) for x in (input_ids, input_mask, token_type_ids)]
        scores = super().__call__(*flat, deterministic=deterministic)["logits"]
        return {"logits": scores.reshape(input_ids.shape[:2])}


class TokenClassifier(nn.Module):
    """A class for each token: "logits" [B, S, C] (Figure 4d)."""

    spec: EncoderSpec
    num_classes: int

    def setup(self):
        self.encoder = make_encoder(self.spec)
        self.token_head = _token_head(self.spec)
        self.dropout = Dropout(self.spec)
        self.classifier = _output_layer(self.spec, self.num_classes)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        sequence = self.encoder(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        sequence = self.dropout(self.token_head(sequence), deterministic)
        return {"logits": self.classifier(sequence)}


class SpanFinder(nn.Module):
    """Start and end of the answer's span: "start", "end" [B, S] (section 4.2, Figure 4c)."""

    spec: EncoderSpec

    def setup(self):
        self.encoder = make_encoder(self.spec)
        self.token_head = _token_head(self.spec)
        self.span = _output_layer(self.spec, 2)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, deterministic: bool
    ) -> dict[str, jax.Array]:
        sequence = self.encoder(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        start, end = jnp.moveaxis(self.span(self.token_head(sequence)), -1, 0)
        return {"start": start, "end": end}
