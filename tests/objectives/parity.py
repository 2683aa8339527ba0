"""A toy objective: for every token, whether its id is odd, and what a frozen teacher makes of it.

It has all that an objective may have: a setting, a corruption and arrays of its own, heads and a
frozen part, chance on the device, two losses of different weight, a derived metric and a warning.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.fields import Field
from bertjax.data.examples.layout import SINGLE_SPANS
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.tasks import EncoderModel
from bertjax.models.layers.dense import Dense
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.objective import PretrainingObjective
from bertjax.training.model import Model, Part

UNSEEN = 1  # in the place of a token that the student does not see


@dataclasses.dataclass(frozen=True)
class Parities:
    """The text stays whole on the host; the labels are made from it."""

    fields: ClassVar[Mapping[str, Field]] = {
        "parities": Field("BS", "int32"),
        "parity_weights": Field("BS", "float32"),
    }
    has_fixed_masks: ClassVar[bool] = False

    def predicted(self, length):
        """No token goes through the vocabulary."""
        del length
        return 0

    def open(self, tokenizer):
        """Padding does not count."""

        def corrupted(rows, draws, index):
            del draws, index
            ids = rows.arrays["input_ids"]
            real = ids != tokenizer.pad_id
            return {"parities": ids % 2 * real, "parity_weights": real.astype(np.float32)}

        return corrupted


class Student(nn.Module):
    """The encoder, a head of two classes and one that learns from the teacher."""

    spec: EncoderSpec

    def setup(self):
        inputs, init = {axes.EMBED: self.spec.hidden_size}, nn.initializers.normal(0.1)
        self.encoder = make_encoder(self.spec)
        self.parity = Dense(inputs, {axes.CLASSES: 2}, init)
        self.taught = Dense(inputs, {axes.EMBED_OUT: self.spec.hidden_size}, init)

    def __call__(self, inputs, *, deterministic):
        """ "parity" [B, S, 2]; "taught" [B, S, D]."""
        states = self.encoder(inputs, deterministic=deterministic)
        return {"parity": self.parity(states), "taught": self.taught(states)}


@dataclasses.dataclass(frozen=True)
class Parity(PretrainingObjective):
    """See above.

    Attributes:
      hidden: the share of the tokens that the student does not see.
    """

    hidden: float = 0.2

    name = "parity"
    layout = SINGLE_SPANS
    loss_weights = {"parity_loss": 1.0, "distance_loss": 0.25}
    main_metric, accuracy = "parity_loss", "parity_accuracy"
    columns = ("parity_loss", "parity_accuracy", "parity_bits", "distance_loss")
    exported = "student"

    def corruption(self, rule, microbatches=1):
        """The labels."""
        del rule
        return Parities()

    def module(self, spec):
        """The heads are its own."""
        return Student(spec)

    def model(self, spec):
        """The teacher is an encoder."""
        inputs = text_inputs(spec, B=1, S=8)
        teacher = Part(EncoderModel(spec), inputs, frozen=True)
        return Model({"student": Part(self.module(spec), inputs), "teacher": teacher})

    def outputs(self, model, params, batch, rngs):
        """The teacher sees the whole text; adds its "sequence" [B, S, D]."""
        ids = batch["input_ids"]
        unseen = jax.random.bernoulli(rngs.draw("unseen"), self.hidden, ids.shape)
        some = {**batch, "input_ids": jnp.where(unseen, UNSEEN, ids)}
        return {
            **model(params, some, rngs.dropout(), "student"),
            "sequence": model(params, batch, part="teacher")["sequence"],
        }

    def weights(self, batch):
        """1 on tokens, for both losses."""
        return dict.fromkeys(self.loss_weights, batch["parity_weights"])

    def values(self, outputs, batch):
        """Cross-entropy, and squared distance to the teacher."""
        logits, labels = outputs["parity"], batch["parities"]
        distance = jnp.square(outputs["taught"] - outputs["sequence"]).mean(-1)
        return {
            "parity_loss": {
                "parity_loss": cross_entropy(logits, labels),
                "parity_accuracy": logits.argmax(-1) == labels,
            },
            "distance_loss": {"distance_loss": distance},
        }

    def derived(self, metrics):
        """The loss in bits."""
        return {"parity_bits": metrics["parity_loss"] / np.log(2)}

    def warning(self, metrics):
        """It warns if half of the answers are wrong."""
        return "" if metrics["parity_accuracy"] > 0.5 else "no better than a coin"
