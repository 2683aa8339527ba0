"""The encoder with the heads of fine-tuning (section 4, Figure 4), and alone.

Each takes the encoder's inputs by name and returns {name: float32 array}.

The family decides how a text becomes one vector. With a BiLSTM over the encoder (section 5.1,
Table 5, "+ BiLSTM"), which replaces all before the output layer, it is the last states of both
directions, each of which has read the whole text.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of, make_encoder
from bertjax.models.heads.answer_network import AnswerNetwork
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.crf import Crf
from bertjax.models.heads.embedding import Embedding, PooledModules
from bertjax.models.heads.output_heads import masked_lm, pooler, token_head
from bertjax.models.layers.dense import Dense
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.pooling import last_token

BILSTM = "bilstm"  # the part between the encoder and the output layer
CLASSIFIERS = ("answer_network", "classifier")  # the output layers with a row for each class
OUTPUT_LAYERS = (*CLASSIFIERS, "crf", "span")  # the parts that compute the outputs of a task

Inputs = Mapping[str, jax.Array]


class EncoderModel(nn.Module):
    """The encoder: "sequence" [B, S, D]; and "pooled" [B, D] in families where it has a pooler."""

    spec: EncoderSpec

    def setup(self) -> None:
        family = family_of(self.spec)
        self.encoder = make_encoder(self.spec)
        self.pools = bool(family.heads[head_types.ENCODER])
        if self.pools:
            self.pooler = pooler(self.spec, head_types.ENCODER)

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        states = self.encoder(inputs, deterministic=deterministic)
        outputs = {"sequence": states}
        if self.pools:
            outputs["pooled"] = self.pooler(states, inputs["input_mask"], deterministic)
        return {name: output.astype(jnp.float32) for name, output in outputs.items()}


class _Model(nn.Module):
    """The base class of the models of all tasks."""

    spec: EncoderSpec
    num_classes: int  # C
    bilstm: BiLstm | None = None

    def setup(self) -> None:
        self.encoder = make_encoder(self.spec)
        self.dropout = Dropout(self.spec.hidden_dropout_prob)

    def states(self, inputs: Inputs, deterministic: bool) -> jax.Array:
        """The output of the encoder, [B, S, D]; or of the BiLSTM, [B, S, 2 H]."""
        states = self.encoder(inputs, deterministic=deterministic)
        if self.bilstm:
            states = self.bilstm(states, inputs["input_mask"], deterministic=deterministic)
        return states

    def output_layer(self, head_type: str, width: int = 0) -> Dense:
        """The only new parameters but a BiLSTM's (section 4.1); they begin as in transformers."""
        width = width or (2 * self.bilstm.hidden if self.bilstm else self.spec.hidden_size)
        init = nn.initializers.normal(self.spec.initializer_range)
        sides = {axes.EMBED_OUT: width}, {axes.CLASSES: self.num_classes}
        use_bias = head_type not in family_of(self.spec).unbiased
        return Dense(*sides, init, self.spec.precision.exact, use_bias)


class SequenceClassifier(_Model):
    """One text or a pair of them, into classes or a number: "logits" [B, C] (Figure 4a, b).

    With `predicts_next` also "next" [B, S, V], the logits of the token after each, in families
    whose decoder has no parameters of its own. With `scoring`, its pooling and modules are in the
    place of the family's pooler, as in a CrossEncoder of modules.
    """

    head_type: str = head_types.SEQUENCE_CLASSIFICATION
    predicts_next: bool = False
    scoring: Embedding | None = None

    def setup(self) -> None:
        super().setup()
        if self.scoring:
            self.pooler: nn.Module = PooledModules(self.scoring, self.spec.initializer_range)
        elif not self.bilstm:
            self.pooler = pooler(self.spec, self.head_type)
        width = self.scoring.dimensions(self.spec.hidden_size) if self.scoring else 0
        self.classifier = self.output_layer(self.head_type, width)
        if self.predicts_next:
            self.decoder = masked_lm(self.spec)

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        states, mask = self.states(inputs, deterministic), inputs["input_mask"]
        if self.bilstm:
            forward, backward = jnp.split(states, 2, -1)
            vector = jnp.concatenate([last_token(forward, mask), backward[:, 0]], -1)
        else:
            vector = self.pooler(states, mask, deterministic)
        outputs = {"logits": self.classifier(self.dropout(vector, deterministic))}
        if self.predicts_next:
            outputs["next"] = self.decoder(states, self.encoder.token_embedding)
        return outputs


class PairClassifier(_Model):
    """A pair of texts, into classes by an `AnswerNetwork`: "logits" [B, C], of probabilities."""

    steps: int = 1
    step_dropout: float = 0.0

    def setup(self) -> None:
        super().setup()
        self.answer_network = AnswerNetwork(
            self.num_classes,
            self.steps,
            self.step_dropout,
            self.spec.hidden_dropout_prob,
            nn.initializers.normal(self.spec.initializer_range),
            self.spec.precision.exact,
        )

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        states, numbers = self.states(inputs, deterministic), inputs["text_numbers"]
        return {"logits": self.answer_network(states, numbers, deterministic=deterministic)}


class ChoiceScorer(SequenceClassifier):
    """A score for each choice (section 4.4): "logits" [B, C], and perhaps "next" [B, C, S, V]."""

    num_classes: int = 1
    head_type: str = head_types.MULTIPLE_CHOICE

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        read_inputs = {name: inputs[name] for name in family_of(self.spec).inputs if name in inputs}
        flat = {name: x.reshape(-1, x.shape[-1]) for name, x in read_inputs.items()}
        outputs = super().__call__(flat, deterministic=deterministic)
        shape = inputs["input_mask"].shape[:2]
        outputs["logits"] = outputs["logits"][:, 0]
        return {name: output.reshape(*shape, *output.shape[1:]) for name, output in outputs.items()}


class _TokenModel(_Model):
    """A model with an output for each token."""

    def setup(self) -> None:
        super().setup()
        self.token_head = None if self.bilstm else token_head(self.spec)


class TokenClassifier(_TokenModel):
    """A class for each token: "logits" [B, S, C] (Figure 4d)."""

    def setup(self) -> None:
        super().setup()
        self.classifier = self.output_layer(head_types.TOKEN_CLASSIFICATION)

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        states = self.states(inputs, deterministic)
        if self.token_head:
            states = self.token_head(states)
        return {"logits": self.classifier(self.dropout(states, deterministic))}


class SequenceTagger(TokenClassifier):
    """A tagger whose tags depend on each other; `bertjax.models.heads.crf.Crf` has its outputs."""

    def setup(self) -> None:
        super().setup()
        self.crf = Crf(self.num_classes)

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        logits = super().__call__(inputs, deterministic=deterministic)["logits"]
        return self.crf(logits, inputs)


class SpanFinder(_TokenModel):
    """Start and end of the answer's span: "start", "end" [B, S] (section 4.2, Figure 4c)."""

    num_classes: int = 2

    def setup(self) -> None:
        super().setup()
        self.span = self.output_layer(head_types.QUESTION_ANSWERING)

    def __call__(self, inputs: Inputs, *, deterministic: bool) -> dict[str, jax.Array]:
        states = self.states(inputs, deterministic)
        if self.token_head:  # needs dropout after it; BERT's encoder has it in its last layer
            states = self.dropout(self.token_head(states), deterministic)
        start, end = jnp.moveaxis(self.span(states), -1, 0)
        return {"start": start, "end": end}
