"""A model with the head of a task: its loss, and its outputs for any examples."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from bertjax.base.progress import Progress
from bertjax.encoders.contract import EncoderSpec
from bertjax.heads.architectures import ARCHITECTURES
from bertjax.heads.bilstm import BiLstm
from bertjax.inference.batcher import Batcher
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.sharding.placement import Placement
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import Family, Outputs
from bertjax.training.step import LossFunction


def class_names(family: Family) -> tuple[str, ...]:
    """The names of the rows of the output layer; none where its shape is fixed."""
    if not TASK_OBJECTIVES[family.objective].has_classes:
        return ()
    return family.classes or ("LABEL_0",)  # as transformers calls the one of a number or a score


class TaskModel(NamedTuple):
    """A model that learns a task.

    Attributes:
      module: takes arrays and `deterministic`, returns {name: float32 array}.
      inputs: the fields of a batch that it takes -> the shape and dtype of some.
    """

    module: nn.Module
    inputs: Mapping[str, jax.ShapeDtypeStruct]

    def init(self, key: jax.Array) -> Any:
        """Fresh parameters, each with its logical axes."""
        some = [jax.numpy.zeros(each.shape, each.dtype) for each in self.inputs.values()]
        return self.module.init(key, *some, deterministic=True)["params"]

    def apply(self, params: Any, batch: Mapping[str, jax.Array], key: jax.Array | None):
        """The outputs for a batch; with dropout if there is a key."""
        return self.module.apply(
            {"params": params},
            *(batch[name] for name in self.inputs),
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )

    def loss(self, objective: TaskObjective) -> LossFunction:
        """Its loss as the training step wants it."""
        return objective.loss(self.apply)


def encoder_with_head(family: Family, spec: EncoderSpec, bilstm: BiLstm | None = None) -> TaskModel:
    """The encoder with the head that learns what a family asks, and perhaps a BiLSTM between."""
    objective = TASK_OBJECTIVES[family.objective]
    architecture = ARCHITECTURES[objective.kind]
    some = objective.shapes(B=1, C=2, S=8)
    inputs = {name: some[name] for name in objective.inputs}
    module = architecture.build(spec, len(class_names(family)))
    return TaskModel(module.clone(bilstm=bilstm), inputs)


class Predictor:
    """A model on the devices, for examples of any length; each length is compiled once.

    Args:
      objective: what it has learned.
      batch_tokens: tokens computed together on one device; 0 for 512 on a CPU, 16,384 elsewhere.
    """

    def __init__(
        self,
        model: TaskModel,
        objective: TaskObjective,
        placement: Placement,
        *,
        pad_id: int,
        batch_tokens: int,
    ):
        self._model, self._objective, self._pad_id = model, objective, pad_id
        self._batcher = Batcher(placement, batch_tokens)
        self._apply = jax.jit(
            lambda params, batch: model.apply(params, batch, None),
            out_shardings=placement.replicated,
        )

    def outputs(
        self, params: Any, encoded: Encoded, buckets: tuple[int, ...], what: str
    ) -> Outputs:
        """The model's outputs for each sequence of all examples, in their order.

        Args:
          params: on the devices.
          buckets: lengths that batches are padded to, ascending.
          what: is being done, for the progress.
        """
        results: dict[str, list[np.ndarray]] = {}

        def make(examples: np.ndarray, rows: int, bucket: int) -> dict[str, np.ndarray]:
            batch = encoded.batch(self._objective.fields, examples, rows, bucket, self._pad_id)
            return {name: batch[name] for name in self._model.inputs}

        batches = self._batcher.run(
            encoded.lengths,
            buckets,
            rows=lambda bucket: self._batcher.rows(bucket * encoded.choices),
            make=make,
            compute=lambda batch: self._apply(params, batch),
        )
        with Progress(what, len(encoded), " examples") as progress:
            for examples, outputs in batches:
                for name, array in outputs.items():
                    into = results.setdefault(name, [np.empty(0)] * len(encoded.first))
                    for sequence, row in self._sequences(array, examples, encoded):
                        into[sequence] = row
                progress.update(len(examples))
        return results

    def _sequences(
        self, array: np.ndarray, examples: np.ndarray, encoded: Encoded
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The number of each sequence of a batch, and what one output says of it."""
        for row, example in zip(array, examples, strict=False):
            if self._objective.of_tokens:
                yield example, row[: encoded.starts[example + 1] - encoded.starts[example]]
            elif encoded.choices > 1:
                yield from enumerate(row, example * encoded.choices)
            else:
                yield example, row
