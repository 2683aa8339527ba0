"""The examples of a task, read and encoded: what all trials of a fine-tuning share."""

import dataclasses
import hashlib
from typing import Any, Protocol, Self

import numpy as np

from bertjax.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import TRAIN, Family, Task


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples to predict, and as the model takes them."""

    examples: list[Any]
    encoded: Encoded


class Encode(Protocol):
    """(examples, split, labelled) -> as the model takes them; `split` is their name."""

    def __call__(self, examples: list[Any], split: str, *, labelled: bool) -> Encoded: ...


@dataclasses.dataclass(frozen=True)
class TaskData:
    """What is trained on, and what is scored.

    Attributes:
      encode: how examples become sequences.
      identity: a hash of the training sequences, one of those to score, and what determines the
        rest.
    """

    task: Task
    encode: Encode
    train: Encoded
    dev: dict[str, Split]
    identity: dict[str, str]

    @classmethod
    def read(cls, task: Task, encode: Encode, weights: str) -> Self:
        """Reads the training and dev splits.

        Args:
          weights: the identity of what will be fine-tuned.

        Raises:
          InputError: as the task's readers, or a split without examples.
        """
        train = encode(_examples(task, TRAIN), TRAIN, labelled=True)
        dev = {split: _split(task, split, encode) for split in task.dev_splits}
        identity = {"train": _digest(train), "dev": _digest(*(s.encoded for s in dev.values()))}
        return cls(task, encode, train, dev, identity | {"weights": weights})

    def split(self, name: str) -> Split:
        """A dev split, or one of the test splits, which is read now."""
        return self.dev.get(name) or _split(self.task, name, self.encode)


def _split(task: Task, name: str, encode: Encode) -> Split:
    examples = _examples(task, name)
    return Split(examples, encode(examples, name, labelled=False))


def encoder(family: Family, given: Pretrained, max_length: int) -> Encode:
    """Encodes for the model that is made of the given weights.

    Raises:
      InputError, when it encodes: two texts for a model with one segment; see `Family.encode`.
    """

    def encode(examples: list[Any], split: str, *, labelled: bool) -> Encoded:
        del split
        encoded = family.encode(examples, given.tokenizer, max_length, labelled=labelled)
        if given.spec.type_vocab_size < 2 and (encoded.first < np.diff(encoded.starts)).any():
            raise InputError(f"{given.origin} has only one segment: it does not take two texts")
        return encoded

    return encode


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
