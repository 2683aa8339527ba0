"""The examples of a task, read and encoded once for all trials of a fine-tuning."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from bertjax.base.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import TRAIN, Family, Task

_log = logging.getLogger(__name__)

SplitExamples = dict[str, list[Any]]  # split -> its examples


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of a split, and their encoding for the model."""

    examples: list[Any]
    encoded: Encoded


class Encode(Protocol):
    """Encodes the examples of the split named `split` for the model."""

    def __call__(self, examples: list[Any], split: str, *, labelled: bool) -> Encoded: ...


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The splits of a task: for training, for scores, and for predictions without scores.

    Attributes:
      identity: hashes of the training examples, of the split that chooses the best trial, and of
        the weights.
      others: the hash of each other split. These splits may be added or change between trials.
    """

    train: Encoded
    dev: dict[str, Split]
    test: dict[str, Split]
    identity: dict[str, str]
    others: dict[str, str]

    @classmethod
    def of(cls, task: Task, examples: SplitExamples, encode: Encode, weights: str) -> Self:
        """Encodes the examples of `read_examples`; `weights`: the identity of what is tuned."""

        def splits(names: Sequence[str]) -> dict[str, Split]:
            chosen = {name: examples[name] for name in names}
            return {n: Split(some, encode(some, n, labelled=False)) for n, some in chosen.items()}

        first, *scored = task.dev_splits
        digests = {name: digest(some) for name, some in examples.items()}
        return cls(
            train=encode(examples[TRAIN], TRAIN, labelled=True),
            dev=splits(task.dev_splits),
            test=splits(task.test_splits),
            identity={"weights": weights, "train": digests[TRAIN], "dev": digests[first]},
            others={name: digests[name] for name in (*scored, *task.test_splits)},
        )


def name_in(task: str, name: str) -> str:
    """The name of something of a task; of a single task, whose name is "", it is the name alone."""
    return f"{task} {name}" if task else name


def identity_of(data: Mapping[str, TaskData]) -> dict[str, str]:
    """The identity of all that is learned together, by the names of tasks."""
    return {
        name_in(task, what): value
        for task, each in data.items()
        for what, value in each.identity.items()
    }


def read_examples(task: Task) -> SplitExamples:
    """Reads all splits, so that an error in one of them is reported before the training."""
    examples = {}
    for split in (TRAIN, *task.dev_splits, *task.test_splits):
        examples[split] = task.read(split)
        if not examples[split]:
            raise InputError(f"{task.name}: no examples in {split}")
    return examples


def encoder(family: Family, pretrained: Pretrained, max_length: int) -> Encode:
    """Returns a function that encodes examples for the model of the pretrained weights.

    That function raises InputError for two texts if the model has one token type.
    """

    def encode(examples: list[Any], split: str, *, labelled: bool) -> Encoded:
        encoded = family.encode(examples, pretrained.tokenizer, max_length, labelled=labelled)
        if difference := pretrained.tokenizer.unusual(encoded.ids):
            _log.warning(
                "%s: %s: is its text in another language, or in another form?", split, difference
            )
        if 0 < pretrained.spec.type_vocab_size <= encoded.token_types.max(initial=0):
            raise InputError(
                f"{pretrained.origin} has only one segment: it does not take two texts"
            )
        return encoded

    return encode


def digest(examples: list[Any]) -> str:
    """A hash of the content of examples, without the places where they were read."""
    result = hashlib.sha256()
    for example in examples:
        fields = vars(example) if dataclasses.is_dataclass(example) else example._asdict()
        result.update(repr([fields[name] for name in fields if name != "where"]).encode())
    return result.hexdigest()
