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
      test: the examples of each test split; `split` encodes them.
      identity: of the training examples, of those to score, and of the weights.
    """

    encode: Encode
    train: Encoded
    dev: dict[str, Split]
    test: dict[str, list[Any]]
    identity: dict[str, str]

    @classmethod
    def read(cls, task: Task, encode: Encode, weights: str) -> Self:
        """Reads every split, so that what is wrong in one is told before the long part.

        Args:
          weights: the identity of what will be fine-tuned.

        Raises:
          InputError: as the task's readers, or a split without examples.
        """
        examples = _examples(task, TRAIN)
        identity = {"weights": weights, "train": _digest(examples)}
        train = encode(examples, TRAIN, labelled=True)
        dev = {name: _split(_examples(task, name), name, encode) for name in task.dev_splits}
        identity["dev"] = _digest([each for split in dev.values() for each in split.examples])
        test = {name: _examples(task, name) for name in task.test_splits}
        return cls(encode, train, dev, test, identity)

    def split(self, name: str) -> Split:
        """A test split, encoded."""
        return _split(self.test[name], name, self.encode)


def _split(examples: list[Any], name: str, encode: Encode) -> Split:
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


def _digest(examples: list[Any]) -> str:
    """Hex hash over all that examples hold, but for where they were read."""
    digest = hashlib.sha256()
    for example in examples:
        fields = example._asdict() if isinstance(example, tuple) else vars(example)
        digest.update(repr([fields[name] for name in fields if name != "where"]).encode())
    return digest.hexdigest()
