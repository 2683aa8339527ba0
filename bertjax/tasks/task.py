"""The contract between `bertjax.programs.finetune` and the tasks in this folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

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
      objective: the name of what is learned: of `bertjax.objectives.registry.TASK_OBJECTIVES`.
      classes: the names of a classifier's classes; () where there are none.
      fields: the keys of the JSON object that `parse` reads.
    """

    objective: str
    classes: tuple[str, ...]
    fields: tuple[str, ...]

    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int, *, labelled: bool
    ) -> Encoded:
        """Encodes examples for the model, with their labels if `labelled`.

        Args:
          max_length: the most tokens of a sequence, including [CLS] and [SEP].

        Raises:
          InputError: an example cannot be used.
        """

    def decode(self, examples: Sequence[Any], encoded: Encoded, outputs: Outputs) -> list[Any]:
        """Makes a prediction for each example."""

    def combine(self, members: Sequence[Sequence[Any]], by: str) -> list[Any]:
        """Makes one prediction for each example from those of several models.

        Args:
          members: each model's predictions, as `decode` makes them.
          by: of `bertjax.tasks.probabilities.BY`; numbers always become their mean.
        """

    def degenerate(self, predictions: Sequence[Any], settings: Mapping[str, Any]) -> str:
        """Why these predictions show that nothing was learned, such as "all are 'yes'"; else "".

        Args:
          settings: the result of `Task.tune`.
        """

    def parse(self, line: str, where: str) -> Any:
        """Parses an example of new text from a line of `launch/predict.py`'s input.

        Args:
          where: the place of the line, for messages.

        Raises:
          InputError: the line has another form.
        """

    def show(self, example: Any, prediction: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The prediction on new text as JSON: labels, probabilities, spans or tags."""


class Task(Protocol):
    """A data set, its metrics, and the official form of its predictions.

    Attributes:
      name: the name in the paper.
      family: the form of its examples and predictions.
      metric: the metric of `score` that chooses the best trial; greater is better.
      dev_splits: the splits with scores, at least one; the first one chooses the best trial.
      test_splits: the splits that are only predicted; () if the data set has none.
    """

    name: str
    family: Family
    metric: str
    dev_splits: tuple[str, ...]
    test_splits: tuple[str, ...]

    def read(self, split: str) -> list[Any]:
        """The examples of `TRAIN` or of one of the other splits.

        Raises:
          InputError: the file is missing or has an error; the message names file, line, field and
            value.
        """

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """Settings that are chosen on the first dev split and saved with the model; often {}."""

    def score(
        self, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """The metrics of a dev split, in percent or on the scale of the task's paper.

        Args:
          settings: the result of `tune`.
        """

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes the predictions of a split to `folder`, in the official form."""
