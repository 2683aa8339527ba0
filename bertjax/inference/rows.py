"""Sequences of any lengths, as the rows of batches."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from bertjax.training.sharding.placement import HostBatch


class Rows(Protocol):
    """N sequences; `lengths` are their tokens, int [N]."""

    @property
    def lengths(self) -> np.ndarray:
        """See above."""

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        """The arrays of B rows of length S, for at most so many sequences; the rest is padding."""


class Column(NamedTuple):
    """One array of the batches."""

    values: Sequence[Any]  # of each sequence, a list or an array
    empty: int = 0  # what pads them
    width: int | None = None  # of the second axis; None: the length of the batch


@dataclasses.dataclass(frozen=True)
class Columns:
    """`Rows` of int32 arrays by name, the tokens first; "input_mask" is added to them."""

    columns: Mapping[str, Column]

    @cached_property
    def lengths(self) -> np.ndarray:
        tokens, *_ = self.columns.values()
        return np.array([len(each) for each in tokens.values], np.int64)

    def batch(self, numbers: np.ndarray, rows: int, length: int) -> HostBatch:
        batch = {"input_mask": np.zeros((rows, length), np.int32)}
        batch["input_mask"][: len(numbers)] = np.arange(length) < self.lengths[numbers, None]
        batch["input_mask"][len(numbers) :, 0] = 1  # a row of padding alone means nothing
        for name, (values, empty, width) in self.columns.items():
            further = np.shape(values[0])[1:] if len(values) else ()
            shape = rows, length if width is None else width, *further
            batch[name] = np.full(shape, empty, np.int32)
            for row, number in zip(batch[name], numbers, strict=False):
                row[: len(values[number])] = values[number]
        return batch
