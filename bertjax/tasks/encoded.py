"""Examples as the model takes them: token ids of any length, cut into batches of one length."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np

from bertjax.base.fields import Field

IGNORED = -1  # the label of a token that is not classified


@dataclasses.dataclass(frozen=True)
class Encoded:
    """N sequences; `choices` of them in a row are one example.

    Attributes:
      ids: int32 [T], every sequence with its [CLS] and [SEP], one behind the other.
      starts: int64 [N + 1], where each begins in `ids`; and T.
      first: int32 [N], how many tokens of each are of segment 0; the others are of segment 1.
      labels: what is to be predicted, under its name in the objective's fields: an array of
        one for each example, or int32 [T] of one for each token (`IGNORED`: none).
      choices: C.
      cut: how many texts were cut off at the end, by the tokens that are left of them.
    """

    ids: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    labels: Mapping[str, np.ndarray]
    choices: int = 1
    cut: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sequences: Iterable[tuple[list[int], int]],
        labels: Mapping[str, np.ndarray],
        **fields,
    ) -> Self:
        """From the ids of each sequence, and how many of them are of segment 0."""
        sequences = list(sequences)
        starts = np.zeros(len(sequences) + 1, np.int64)
        starts[1:] = np.cumsum([len(ids) for ids, _ in sequences])
        flat = np.fromiter((i for ids, _ in sequences for i in ids), np.int32, starts[-1])
        first = np.array([first for _, first in sequences], np.int32)
        return cls(flat, starts, first, labels, **fields)

    def __len__(self) -> int:
        """How many examples."""
        return len(self.first) // self.choices

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N / C]: the tokens of each example, of the longest of its choices."""
        return np.diff(self.starts).reshape(-1, self.choices).max(1)

    def batch(
        self,
        fields: Mapping[str, Field],
        examples: np.ndarray,
        rows: int,
        length: int,
        pad_id: int,
    ) -> dict[str, np.ndarray]:
        """The arrays of an objective of fine-tuning for some examples.

        Args:
          fields: the objective's.
          examples: their numbers, int [at most `rows`]; the rows behind them are filled up with
            empty ones, of which nothing counts.
          rows: B.
          length: S, at least that of each of them.
        """
        count, choices = len(examples), self.choices
        numbers = (examples[:, None] * choices + np.arange(choices)).reshape(-1)
        sizes = np.diff(self.starts)[numbers]
        places = np.arange(length)
        there = places < sizes[:, None]  # [count * C, S]
        tokens = np.where(there, self.starts[numbers][:, None] + places, 0)

        def filled(array: np.ndarray, empty: float = 0) -> np.ndarray:
            result = np.full((rows, *array.shape[1:]), empty, array.dtype)
            result[:count] = array
            return result

        def shaped(array: np.ndarray, empty: int = 0) -> np.ndarray:
            array = array.reshape(count, choices, length) if choices > 1 else array
            return filled(array.astype(np.int32), empty)

        batch = {
            "input_ids": shaped(np.where(there, self.ids[tokens], pad_id), pad_id),
            "input_mask": shaped(there),
            "token_type_ids": shaped(there & (places >= self.first[numbers][:, None])),
            "is_real_example": filled(np.ones(count, np.float32)),
        }
        for name, field in fields.items():
            if name in self.labels:
                label = self.labels[name]
                if field.letters == "BS":
                    batch[name] = filled(np.where(there, label[tokens], IGNORED), IGNORED)
                else:
                    batch[name] = filled(label[examples])
        return batch
