"""What is minimized: the contract between the training step and an objective."""

import abc
import zlib
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.base.fields import WORD_LENGTH, Field
from bertjax.training.model import Arrays, Model, Params

Sums = dict[str, tuple[jax.Array, jax.Array]]  # (sum, count) by name
HostSums = dict[str, tuple[float, float]]
LossWeights = jax.Array | int


class Rngs(NamedTuple):
    """The random streams of an update or of an evaluation (`deterministic`: nothing is dropped)."""

    key: jax.Array
    deterministic: bool = False

    def dropout(self, call: int = 0) -> jax.Array | None:
        """The key of dropout in one call of a model; other calls drop other elements."""
        if self.deterministic:
            return None
        return self.draw(f"dropout {call}") if call else self.key

    def draw(self, name: str) -> jax.Array:
        """A key for other random numbers, such as those of a corruption on the device."""
        return jax.random.fold_in(self.key, zlib.crc32(name.encode()))


class Objective(abc.ABC):
    """What is minimized, for batches of one kind.

    Each loss is a weighted mean of the values of things such as masked tokens or sequences. `sums`
    and `counts` use the same values and weights, so that they agree.

    Attributes:
      needs_full_batch: whether its losses compare the rows of a batch with each other, so that the
        batch cannot be taken in microbatches.
      columns: the metrics that evaluation shows, in order.
    """

    needs_full_batch: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def fields(self) -> Mapping[str, Field]:
        """The arrays of a batch."""

    @property
    @abc.abstractmethod
    def loss_weights(self) -> Mapping[str, float]:
        """{name of a loss: its weight} in the sum that is minimized (section A.2: all are 1)."""

    @abc.abstractmethod
    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """{name of a loss: the weight of each thing that it is the mean of}, from the batch alone.

        An int is a number of things of weight 1. No forward pass is needed, so that each
        microbatch can be weighted by the whole batch's counts.
        """

    @abc.abstractmethod
    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """{name of a loss: {name: values}}: the loss, and metrics over the same things.

        All have the shape of that loss's weights. A metric whose name ends in "_accuracy" is 1
        where an answer is right, and 0 elsewhere.
        """

    def carried(self, model: Model) -> Mapping[str, jax.ShapeDtypeStruct]:
        """{name: shape of one row, and dtype} of what a step hands to the next, such as a memory.

        The outputs have these arrays, and then the next batch has them; at first they are 0.
        """
        del model
        return {}

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The outputs for a batch: one call of the model, unless an objective needs more."""
        return model(params, batch, rngs.dropout())

    def derived(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics of evaluation that follow from the means, such as a perplexity."""
        del metrics
        return {}

    def counts(self, batch: Arrays) -> dict[str, jax.Array]:
        """{name of a loss: the count that divides it}."""
        weights = self.weights(batch)
        return {name: _count(weights[name]) for name in self.loss_weights}

    def sums(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> tuple[Sums, Arrays]:
        """{name: (sum, count)} of every loss and metric, float32 scalars; and what is carried.

        They add over microbatches, devices and hosts, and are divided once.
        """
        outputs = self.outputs(model, params, batch, rngs)
        sums = {}
        with jax.named_scope("losses"):
            values, weights = self.values(outputs, batch), self.weights(batch)
            for loss, named in values.items():
                count = _count(weights[loss])
                for name, value in named.items():
                    sums[name] = (_sum(value, weights[loss]), count)
        return sums, {name: outputs[name] for name in self.carried(model)}

    def shapes(self, **sizes: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The shapes and dtypes of a batch; `sizes` are by letters of `bertjax.base.axes` but W."""
        sizes = {"W": WORD_LENGTH} | sizes
        return {
            name: jax.ShapeDtypeStruct(
                tuple(sizes[letter] for letter in field.letters), field.dtype
            )
            for name, field in self.fields.items()
        }


def _count(weights: LossWeights) -> jax.Array:
    return jnp.float32(weights) if isinstance(weights, int) else weights.sum()


def _sum(values: jax.Array, weights: LossWeights) -> jax.Array:
    return values.sum() if isinstance(weights, int) else (values * weights).sum()
