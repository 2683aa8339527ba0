"""The examples of a task, read and encoded: what all trials of a fine-tuning share."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from bertjax.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import TRAIN, Family, Task

Examples = dict[str, list[Any]]  # of each split


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
    """What is trained on, what is scored, and what is only predicted.

    Attributes:
      identity: of the training examples, of those that trials are chosen by, and of the weights.
      others: the identity of each other split, which may come or change from trial to trial.
    """

    train: Encoded
    dev: dict[str, Split]
    test: dict[str, Split]
    identity: dict[str, str]
    others: dict[str, str]

    @classmethod
    def of(cls, task: Task, examples: Examples, encode: Encode, weights: str) -> Self:
        """Encodes the examples of `read_examples`.

        Args:
          weights: the identity of what will be fine-tuned.

        Raises:
          InputError: an example that cannot be encoded.
        """

        def splits(names: Sequence[str]) -> dict[str, Split]:
            each = {name: examples[name] for name in names}
            return {n: Split(some, encode(some, n, labelled=False)) for n, some in each.items()}

        first, *scored = task.dev_splits
        digests = {name: _digest(some) for name, some in examples.items()}
        return cls(
            train=encode(examples[TRAIN], TRAIN, labelled=True),
            dev=splits(task.dev_splits),
            test=splits(task.test_splits),
            identity={"weights": weights, "train": digests[TRAIN], "dev": digests[first]},
            others={name: digests[name] for name in (*scored, *task.test_splits)},
        )


def read_examples(task: Task) -> Examples:
    """Reads every split, so that what is wrong in one is told before the long part.

    Raises:
      InputError: as the task's readers, or a split without examples.
    """
    examples = {}
    for split in (TRAIN, *task.dev_splits, *task.test_splits):
        examples[split] = task.read(split)
        if not examples[split]:
            raise InputError(f"{task.name}: no examples in {split}")
    return examples


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


def _digest(examples: list[Any]) -> str:
    """Hex hash over all that examples hold, but for where they were read."""
    digest = hashlib.sha256()
    for example in examples:
        fields = example._asdict() if isinstance(example, tuple) else vars(example)
        digest.update(repr([fields[name] for name in fields if name != "where"]).encode())
    return digest.hexdigest()
