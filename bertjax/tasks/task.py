"""What fine-tuning asks of a task: the contract between `bertjax.finetune` and the files here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertjax.tasks.encoded import Encoded
from bertjax.text.tokenizer import Tokenizer

TRAIN = "train"

# Name of an output of the model -> one float32 array for each sequence: [C] or a number of the
# whole sequence, [S] or [S, C] of its tokens, without padding.
Outputs = Mapping[str, Sequence[np.ndarray]]


class Family(Protocol):
    """What goes in and what comes out: the same for all data sets of one kind.

    Attributes:
      objective: the name of what is learned: of `bertjax.objectives.registry.TASK_OBJECTIVES`.
      classes: the names of a classifier's classes; () where there are none.
    """

    objective: str
    classes: tuple[str, ...]

    def encode(
        self, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int, *, labelled: bool
    ) -> Encoded:
        """Examples as the model takes them, with what is to be predicted if `labelled`.

        Args:
          max_length: tokens of a sequence, with [CLS] and [SEP].

        Raises:
          InputError: an example that cannot be used.
        """

    def decode(self, examples: Sequence[Any], encoded: Encoded, outputs: Outputs) -> list[Any]:
        """A prediction for each example."""

    def degenerate(self, predictions: Sequence[Any], settings: Mapping[str, Any]) -> str:
        """Why these predictions show that nothing was learned, as "all are 'yes'"; or "".

        Args:
          settings: of `Task.tune`.
        """

    def parse(self, line: str, where: str) -> Any:
        """An example of new text, from a line as `launch/predict.py` takes it.

        Raises:
          InputError: not such a line, `where` it is.
        """

    def show(self, example: Any, prediction: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A prediction on new text as JSON: labels, probabilities, spans, tags."""


class Task(Protocol):
    """A data set, its metrics, and the form its predictions are handed in.

    Attributes:
      name: as the paper writes it.
      family: how its examples go in and out.
      metric: the one of `score` that trials are chosen by; greater is better.
      dev_splits: at least one; trials are chosen on the first.
      test_splits: those that are there.
    """

    name: str
    family: Family
    metric: str
    dev_splits: tuple[str, ...]
    test_splits: tuple[str, ...]

    def read(self, split: str) -> list[Any]:
        """The examples of `TRAIN` or of one of the other splits.

        Raises:
          InputError: no such file, or what is wrong in it: file, line, field, value.
        """

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """What is decided on the first dev split, and kept with the model; {} for most."""

    def score(
        self, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """The metrics of a dev split, the task's own in percent or as its paper has them.

        Args:
          settings: of `tune`.
        """

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """The predictions of a split in the official form, under `folder`."""
