"""A model with the head of a task, and its outputs for any examples."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from bertjax.base.fields import Field
from bertjax.base.progress import Progress
from bertjax.inference.batcher import Batcher
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.bilstm import BiLstm
from bertjax.models.heads.embedding import Embedding
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.models.heads.tasks import OUTPUT_LAYERS
from bertjax.objectives.task_losses import TASK_LOSSES, TaskLoss
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import Family, Outputs
from bertjax.training.model import Model, Params, Part
from bertjax.training.sharding.placement import HostBatch, Placement


def class_names(family: Family) -> tuple[str, ...]:
    """The names of the rows of the output layer; none where its shape is fixed."""
    if not TASK_LOSSES[family.objective].has_classes:
        return ()
    return family.classes or ("LABEL_0",)  # transformers' name for the only row


def encoder_with_head(
    family: Family,
    spec: EncoderSpec,
    bilstm: BiLstm | None = None,
    scoring: Embedding | None = None,
) -> Model:
    """The encoder with the head that a family needs, and what stands between them."""
    model = encoder_with_heads({"": family}, spec, bilstm)
    return _with_module(model, scoring=scoring) if scoring else model


def encoder_with_heads(
    families: Mapping[str, Family], spec: EncoderSpec, bilstm: BiLstm | None = None
) -> Model:
    """A model with a part for each task (a single one has the name ""), with the same encoder.

    Shared parameters are those of the first part that has them.
    """
    parts: dict[str, Part] = {}
    owners: dict[str, str] = {}  # a branch of the parameters -> the part that has it
    for name, family in families.items():
        head_spec = HEAD_SPECS[TASK_LOSSES[family.objective].head_type]
        module = head_spec.module(spec, len(class_names(family)), vars(family))
        module = module.clone(bilstm=bilstm)
        sizes = dict(B=1, C=2, S=8)
        shape = {letter: sizes[letter] for letter in head_spec.axes}
        common = [p for p in head_spec.parts(spec, bilstm) if p not in OUTPUT_LAYERS]
        shared = {branch: owners[branch] for branch in common if branch in owners}
        owners = dict.fromkeys(common, name) | owners
        parts[name] = Part(module, head_spec.inputs(spec, **shape), shared=shared)
    return Model(parts)


def predicting_next(model: Model) -> Model:
    """The same model of whole texts, which also gives the logits of each next token."""
    return _with_module(model, predicts_next=True)


def _with_module(model: Model, **settings: Any) -> Model:
    part = model.parts[""]
    return Model({"": dataclasses.replace(part, module=part.module.clone(**settings))})


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Rows of examples, with the arrays that a model reads."""

    encoded: Encoded
    fields: Mapping[str, Field]
    inputs: Collection[str]
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        return self.encoded.lengths

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        batch = self.encoded.batch(self.fields, numbers, rows, length, self.pad_id)
        return {name: batch[name] for name in self.inputs}


class Predictor:
    """A model on the devices, for examples of any length; each length is compiled once.

    `part` has learned the task of `loss`. `batch_tokens` are computed together on one device; 0 for
    512 on a CPU, 16,384 elsewhere.
    """

    def __init__(
        self,
        model: Model,
        loss: TaskLoss,
        placement: Placement,
        *,
        pad_id: int,
        batch_tokens: int,
        part: str = "",
    ):
        self._inputs = model.parts[part].inputs
        self._loss, self._pad_id = loss, pad_id
        self._batcher = Batcher(placement, batch_tokens)
        self._apply = jax.jit(
            lambda params, batch: model(params, batch, part=part),
            out_shardings=placement.replicated,
        )

    def outputs(
        self, params: Params, encoded: Encoded, buckets: tuple[int, ...], what: str
    ) -> Outputs:
        """The model's outputs for each sequence of all examples, in their order.

        Batches are padded to one of the ascending `buckets`.
        """
        results: dict[str, list[np.ndarray]] = {}
        rows = _Examples(encoded, self._loss.fields, self._inputs, self._pad_id)
        with Progress(what, len(encoded), " examples") as progress:
            batches = self._batcher.predict(
                *(partial(self._apply, params), rows, buckets),
                size=lambda bucket: self._batcher.rows(bucket * encoded.choices),
                progress=progress,
            )
            for examples, outputs in batches:
                for name, array in outputs.items():
                    into = results.setdefault(name, [np.empty(0)] * (len(encoded.starts) - 1))
                    for sequence, row in self._sequences(array, examples, encoded):
                        into[sequence] = row
        return results

    def _sequences(
        self, array: np.ndarray, examples: np.ndarray, encoded: Encoded
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the number of each sequence of a batch, and its row of an output."""
        for row, example in zip(array, examples, strict=True):
            if self._loss.of_tokens:
                yield example, row[: encoded.starts[example + 1] - encoded.starts[example]]
            elif encoded.choices > 1:
                yield from enumerate(row, example * encoded.choices)
            else:
                yield example, row
