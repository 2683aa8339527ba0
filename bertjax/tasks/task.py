"""The contract between `bertjax.programs.finetune` and the tasks in this folder."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from bertjax.tasks.encoded import Encoded
from bertjax.text.tokenizer import Tokenizer

TRAIN = "train"

# The name of a model's output -> one float32 array for each sequence. Its shape is [C] or () for
# the whole sequence, or [S] or [S, C] for its tokens, without padding.
Outputs = Mapping[str, Sequence[np.ndarray]]


class Family(Protocol):
    """The form of examples and predictions, which all data sets of one kind share.

    Attributes:
      objective: what is learned, a key of `bertjax.objectives.task_losses.TASK_LOSSES`.
      fields: the keys of the JSON object that `parse` reads.
    """

    objective: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of a classifier's classes; () where there are none."""

    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int, *, labelled: bool
    ) -> Encoded:
        """Encodes examples, with labels if `labelled`, in at most `max_length` tokens each."""

    def decode(self, examples: Sequence[Any], encoded: Any, outputs: Outputs) -> list[Any]:
        """Makes a prediction for each example; `encoded` is the result of `encode`."""

    def combine(self, members: Sequence[Sequence[Any]], by: str) -> list[Any]:
        """Makes one prediction for each example from those of several models.

        `by` is one of `bertjax.tasks.probabilities.BY`; of numbers, it is always the mean.
        """

    def degenerate(self, predictions: Sequence[Any], settings: Mapping[str, Any]) -> str:
        """Why nothing was learned, such as "all are 'yes'"; "" if something was."""

    def parse(self, line: str, where: str) -> Any:
        """Parses a line of `launch/predict.py`'s input; an InputError names its place, `where`."""

    def show(self, example: Any, prediction: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The prediction on new text as JSON: labels, probabilities, spans or tags."""


class Task(abc.ABC):
    """A data set, its metrics, and the official form of its predictions.

    Attributes:
      name: the name in the paper.
      data: the folder of its files; or "tfds:...", where the task reads such data sets.
    """

    name: str
    data: str
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    @property
    @abc.abstractmethod
    def family(self) -> Family:
        """The form of its examples and predictions."""

    @property
    def objective_settings(self) -> Mapping[str, Any]:
        """Values of `bertjax.objectives.task_losses.Settings`; the others keep their defaults."""
        return {}

    @property
    @abc.abstractmethod
    def metric(self) -> str:
        """The metric of `score` that chooses the best trial; greater is better."""

    @property
    @abc.abstractmethod
    def dev_splits(self) -> tuple[str, ...]:
        """The splits with scores, at least one; the first one chooses the best trial."""

    @property
    @abc.abstractmethod
    def test_splits(self) -> tuple[str, ...]:
        """The splits that are only predicted; () if the data set has none."""

    @abc.abstractmethod
    def read(self, split: str) -> list[Any]:
        """The examples of `TRAIN` or of one of the other splits.

        If a file is missing or wrong, an InputError names file, line, field and value.
        """

    @abc.abstractmethod
    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Settings that are chosen on the first dev split and saved with the model; often {}."""

    @abc.abstractmethod
    def score(
        self, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """The metrics of a dev split, in percent or on the scale of the task's paper."""

    @abc.abstractmethod
    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes the predictions of a split to `folder`, in the official form."""
