"""A toy objective: for every token, whether its id is odd, and what a frozen teacher says of it.

It has all that an objective may have: a corruption and arrays of its own, a head and a frozen part,
chance on the device, two losses of different weight, a derived metric and a warning.
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
from bertjax.encoders.bert.encoder import Bert
from bertjax.encoders.bert.spec import BertSpec
from bertjax.examples.layout import SINGLE_SPANS
from bertjax.layers.dense import Dense, exact, parameter
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.objectives.objective import PretrainingObjective

WIDTH = 3  # of what the teacher says
HIDDEN = 0.2  # share of the tokens that the model does not see
UNSEEN = 1  # in their place


@dataclasses.dataclass(frozen=True)
class Parities:
    """The text stays whole on the host; the labels are made from it."""

    fields: ClassVar[Mapping[str, Field]] = {
        "parities": Field("BS", "int32"),
        "parity_weights": Field("BS", "float32"),
    }

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


class ParityModel(nn.Module):
    """The encoder, a head of two classes and one that learns from a teacher: a table of vectors."""

    spec: BertSpec

    def setup(self):
        spec, inputs = exact(self.spec), {axes.EMBED_OUT: self.spec.hidden_size}
        self.bert = Bert(self.spec)
        self.parity = Dense(spec, inputs, {axes.CLASSES: 2})
        self.student = Dense(spec, inputs, {axes.CLASSES: WIDTH})
        self.teacher = Teacher(self.spec)

    def __call__(self, input_ids, input_mask, token_type_ids, original_ids=None, *, deterministic):
        """ "parity" [B, S, 2]; "student" and "teacher" [B, S, WIDTH]."""
        sequence = self.bert(input_ids, input_mask, token_type_ids, deterministic=deterministic)
        taught = self.teacher(input_ids if original_ids is None else original_ids)
        return {
            "parity": self.parity(sequence),
            "student": self.student(sequence),
            "teacher": jax.lax.stop_gradient(taught),
        }


class Teacher(nn.Module):
    """A vector for each piece of the vocabulary."""

    spec: BertSpec

    @nn.compact
    def __call__(self, ids):
        shape = (self.spec.padded_vocab_size, WIDTH)
        table = parameter(
            self, "table", (axes.VOCAB, axes.CLASSES), shape, nn.initializers.normal()
        )
        return table[ids]


class Parity(PretrainingObjective):
    """See above."""

    name = "parity"
    layout = SINGLE_SPANS
    inputs = ("input_ids", "input_mask", "token_type_ids", "original_ids")
    loss_weights = {"parity_loss": 1.0, "distance_loss": 0.25}
    frozen = ("teacher",)
    columns = ("parity_loss", "parity_accuracy", "parity_bits", "distance_loss")

    def corruption(self, rule):
        """The labels."""
        del rule
        return Parities()

    def model(self, spec):
        """The heads are its own."""
        return ParityModel(spec)

    def forward(self, apply, batch, key):
        """Some tokens are hidden here, by chance."""
        ids = batch["input_ids"]
        unseen = jax.random.bernoulli(key, HIDDEN, ids.shape)
        return apply({**batch, "input_ids": jnp.where(unseen, UNSEEN, ids), "original_ids": ids})

    def weights(self, batch):
        """1 on tokens, for both losses."""
        return dict.fromkeys(self.loss_weights, batch["parity_weights"])

    def values(self, outputs, batch):
        """Cross-entropy, and squared distance to the teacher."""
        logits, labels = outputs["parity"], batch["parities"]
        distance = jnp.square(outputs["student"] - outputs["teacher"]).sum(-1)
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


PARITY = Parity()
