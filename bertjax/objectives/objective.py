"""The contract of an objective: everything that other files ask of one.

An objective of pre-training is a class in a file of its own beside this one, and is named in
`bertjax.objectives.registry.OBJECTIVES`. Nothing else knows which objectives there are.
"""

import abc
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertjax.base.fields import INPUT, Field
from bertjax.encoders.contract import EncoderSpec
from bertjax.examples.corruption import Corruption
from bertjax.examples.layout import Layout
from bertjax.examples.masking import MaskingRule
from bertjax.training.step import LossFunction, Sums

Batch = Mapping[str, jax.Array]
Outputs = Mapping[str, jax.Array]
Weights = jax.Array | int


class Objective(abc.ABC):
    """An objective of training, for batches of one kind.

    Each loss is a mean: of the values of some things (hidden tokens, sequences), with weights.
    Sums and counts are made from these in `sums` and `counts`, so that they agree.

    Attributes:
      name: its name in the registry.
      fields: the arrays of a batch.
      inputs: the names of those that the model takes, in its order.
      loss_weights: {name of a loss: its weight}. What is minimized is the sum of the means of these
        losses, each times its weight (section A.2: all weights are 1).
      frozen: parts of the parameters that stay as they are initialized, such as a teacher's. They
        lie and are saved with the others, without optimizer state. Their outputs go through
        `jax.lax.stop_gradient`.
      columns: the metrics that evaluation shows, in order.
      warned: what `warning` tells, as a verdict on a run (`bertjax.training.verdict`).
    """

    name: str
    fields: Mapping[str, Field]
    inputs: tuple[str, ...] = tuple(INPUT)
    loss_weights: Mapping[str, float]
    frozen: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    warned: str = "warned"

    @abc.abstractmethod
    def weights(self, batch: Batch) -> dict[str, Weights]:
        """{name of a loss: the weight of each thing that it is the mean of}, from the batch alone.

        A number says how many things there are, each of weight 1. The weights are known before the
        forward pass, so that each part of a batch can be weighted by the whole batch's counts.
        """

    @abc.abstractmethod
    def values(self, outputs: Outputs, batch: Batch) -> dict[str, dict[str, jax.Array]]:
        """{name of a loss: {name: values}}: the loss, and metrics over the same things.

        All have the shape of that loss's weights. A metric whose name ends in "_accuracy" is 1
        where an answer is right, and 0 elsewhere.
        """

    def forward(self, apply: Callable[[Batch], Outputs], batch: Batch, key: jax.Array) -> Outputs:
        """The outputs for a batch; of one call of the model, unless an objective needs more.

        Args:
          apply: the model on a batch, with dropout in training.
          key: for draws of the objective's own, such as a corruption on the device. In training
            the step decides it; in evaluation the number of the batch alone, so that every
            evaluation draws the same.
        """
        del key
        return apply(batch)

    def derived(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics of evaluation that follow from the means, such as a perplexity."""
        del metrics
        return {}

    def warning(self, metrics: Mapping[str, float]) -> str:
        """Describes a suspicious metric of an evaluation, with the usual causes and what to do.

        Returns "" if there is none. A run tells it once, when it stays so and is no longer what is
        usual at first (`bertjax.training.verdict`).
        """
        del metrics
        return ""

    def counts(self, batch: Batch) -> dict[str, jax.Array]:
        """{name of a loss: the count that divides it}."""
        weights = self.weights(batch)
        return {name: _count(weights[name]) for name in self.loss_weights}

    def sums(self, outputs: Outputs, batch: Batch) -> Sums:
        """{name: (sum, count)} of every loss and metric: float32 scalars.

        They add over micro-batches, devices and hosts, and are divided once.
        """
        values, weights = self.values(outputs, batch), self.weights(batch)
        sums = {}
        for loss, named in values.items():
            count = _count(weights[loss])
            for name, value in named.items():
                sums[name] = (_sum(value, weights[loss]), count)
        return sums

    def loss(self, apply: Callable[[jax.Array, Batch, jax.Array | None], Outputs]) -> LossFunction:
        """Makes the function that the training step minimizes.

        Args:
          apply: (params, batch, dropout key or None for no dropout) -> the model's outputs.
        """

        def sums(params, batch, key, *, deterministic):
            outputs = self.forward(
                lambda batch: apply(params, batch, None if deterministic else key),
                batch,
                jax.random.fold_in(key, 0),
            )
            with jax.named_scope("losses"):
                return self.sums(outputs, batch)

        return LossFunction(sums, self.counts, self.loss_weights, self.derived)

    def shapes(self, **sizes: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes and dtypes of a batch; `sizes` by the letters of `bertjax.base.axes`."""
        return {
            name: jax.ShapeDtypeStruct(tuple(sizes[letter] for letter in letters), dtype)
            for name, (letters, dtype) in self.fields.items()
        }


def _count(weights: Weights) -> jax.Array:
    return jnp.float32(weights) if isinstance(weights, int) else weights.sum()


def _sum(values: jax.Array, weights: Weights) -> jax.Array:
    return values.sum() if isinstance(weights, int) else (values * weights).sum()


class PretrainingObjective(Objective):
    """An objective of pre-training: `config.objective`.

    Attributes:
      layout: how text is laid out in a sequence.
      named_inputs: the names of the arrays that the model takes by name, behind `inputs`.
      causal: whether a token sees only those before it.
      kind: what other programs open a run as: one of `bertjax.encoders.kinds`, or "" where they
        have no use for its model.
    """

    layout: Layout
    named_inputs: tuple[str, ...] = ()
    causal: bool = False
    kind: str = ""

    @abc.abstractmethod
    def corruption(self, rule: MaskingRule) -> Corruption:
        """The change that is made to the text; it may use the rule of `config.masking`."""

    def loss_without_context(self, frequencies: np.ndarray, rule: MaskingRule) -> float | None:
        """The metric "mlm_loss" of the best guess that reads no context; None: it has no such one.

        A model that stays there has learned how frequent the words are, and no more.

        Args:
          frequencies: float [V], the share of each piece in the text.
          rule: that of the text.
        """
        del frequencies, rule
        return None

    @abc.abstractmethod
    def model(self, spec: EncoderSpec) -> nn.Module:
        """The encoder with the heads that are trained: of `bertjax.heads`, or of the objective.

        Called with the arrays of `inputs` and `named_inputs` and with `deterministic`, it returns
        the outputs by name. It can also be called with the three arrays of
        `bertjax.base.fields.INPUT` alone. The parameters have a part for the encoder and for each
        head.
        """

    @property
    def fields(self) -> dict[str, Field]:
        """The arrays of a batch; whatever the rule."""
        return {**self.layout.fields, **self.corruption(MaskingRule()).fields}
