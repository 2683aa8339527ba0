"""The examples of a task, read and encoded: what all trials of a fine-tuning share."""

import dataclasses
import hashlib
from typing import Any, Self

import numpy as np

from bertjax.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import TRAIN, Task


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples to predict, and as the model takes them."""

    examples: list[Any]
    encoded: Encoded


@dataclasses.dataclass(frozen=True)
class TaskData:
    """What is trained on, and what is scored; `identity` is a hash of each."""

    train: Encoded
    dev: dict[str, Split]
    identity: dict[str, str]

    @classmethod
    def read(cls, task: Task, given: Pretrained, max_length: int) -> Self:
        """Reads the training and dev splits.

        Args:
          given: the weights that will be fine-tuned.

        Raises:
          InputError: as the task's readers, or a split without examples.
        """
        examples = _examples(task, TRAIN)
        train = task.family.encode(examples, given.tokenizer, max_length, labelled=True)
        if given.spec.type_vocab_size < 2 and (train.first < np.diff(train.starts)).any():
            raise InputError(
                f"{given.origin} has only one segment: it does not take pairs of texts"
            )
        dev = {split: read_split(task, split, given, max_length) for split in task.dev_splits}
        identity = {"train": _digest(train), "dev": _digest(*(s.encoded for s in dev.values()))}
        return cls(train, dev, identity | {"weights": given.identity})


def read_split(task: Task, split: str, given: Pretrained, max_length: int) -> Split:
    """A split to predict."""
    examples = _examples(task, split)
    return Split(
        examples, task.family.encode(examples, given.tokenizer, max_length, labelled=False)
    )


def _examples(task: Task, split: str) -> list[Any]:
    examples = task.read(split)
    if not examples:
        raise InputError(f"{task.name}: no examples in {split}")
    return examples


def _digest(*parts: Encoded) -> str:
    digest = hashlib.sha256()
    for encoded in parts:
        for array in (encoded.ids, encoded.starts, encoded.first, *encoded.labels.values()):
            digest.update(array.tobytes())
    return digest.hexdigest()
