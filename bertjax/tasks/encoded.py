"""Encoded examples: token ids of any length, and how they become batches of one length."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from bertjax.base.fields import TEXT_NUMBERS, Field
from bertjax.text.template import TokenSequence

IGNORED = -1  # the label of a token that is not classified


@dataclasses.dataclass(frozen=True)
class Encoded:
    """N sequences; `choices` of them in a row are one example.

    Attributes:
      ids: int32 [T], the sequences with their special tokens, one after another; or [T, W], the
        characters of words (`bertjax.text.characters`).
      token_types: int8 [T].
      starts: int64 [N + 1], the index in `ids` where each sequence begins; the last one is T.
      labels: name of a field of the objective -> its labels: one for each example, or int32 [T],
        one for each token (`IGNORED`: none).
      choices: C.
      cut: a length in tokens -> how many texts were cut to it.
      second: int64 [N], the place in each sequence where the second text of a pair begins; empty
        where sequences are of other things.
    """

    ids: np.ndarray
    token_types: np.ndarray
    starts: np.ndarray
    labels: Mapping[str, np.ndarray]
    choices: int = 1
    cut: Mapping[int, int] = dataclasses.field(default_factory=dict)
    second: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(
        cls, sequences: Iterable[TokenSequence], labels: Mapping[str, np.ndarray], **fields: Any
    ) -> Self:
        """Joins sequences; `fields` are the other attributes."""
        sequences = list(sequences)
        starts = np.zeros(len(sequences) + 1, np.int64)
        starts[1:] = np.cumsum([len(ids) for ids, _ in sequences])
        first = next((i for ids, _ in sequences for i in ids), 0)
        dtype = np.dtype((np.int32, np.shape(first)))
        ids = np.fromiter((i for ids, _ in sequences for i in ids), dtype, starts[-1])
        types = np.fromiter((t for _, types in sequences for t in types), np.int8, starts[-1])
        return cls(ids, types, starts, labels, **fields)

    def __len__(self) -> int:
        """How many examples."""
        return (len(self.starts) - 1) // self.choices

    @property
    def lengths(self) -> np.ndarray:
        """int64 [N / C]: the tokens of each example; of several choices, those of the longest."""
        return np.diff(self.starts).reshape(-1, self.choices).max(1)

    def batch(
        self,
        fields: Mapping[str, Field],
        examples: np.ndarray,
        rows: int,
        length: int,
        pad_id: int,
    ) -> dict[str, np.ndarray]:
        """The arrays of a batch, for an objective of fine-tuning.

        Args:
          examples: the numbers of the examples, int [at most `rows`]. The rows after them are
            padding, which has no weight.
          rows: B.
          length: S; no example is longer.
        """
        count, choices = len(examples), self.choices
        numbers = (examples[:, None] * choices + np.arange(choices)).reshape(-1)
        sizes = np.diff(self.starts)[numbers]
        places = np.arange(length)
        is_token = places < sizes[:, None]  # [count * C, S]
        tokens = np.where(is_token, self.starts[numbers][:, None] + places, 0)

        def filled(array: np.ndarray, empty: float = 0) -> np.ndarray:
            result = np.full((rows, *array.shape[1:]), empty, array.dtype)
            result[:count] = array
            return result

        def shaped(array: np.ndarray, empty: int = 0) -> np.ndarray:
            array = array.reshape(count, choices, length) if choices > 1 else array
            return filled(array.astype(np.int32), empty)

        batch = {
            "input_ids": shaped(np.where(is_token, self.ids[tokens], pad_id), pad_id),
            "input_mask": shaped(is_token),
            "token_type_ids": shaped(np.where(is_token, self.token_types[tokens], 0)),
            "is_real_example": filled(np.ones(count, np.float32)),
        }
        if not TEXT_NUMBERS.keys().isdisjoint(fields):
            in_second = places >= self.second[numbers][:, None]
            batch["text_numbers"] = shaped(np.where(is_token, 1 + in_second, 0))
        for name, field in fields.items():
            if name in self.labels:
                label = self.labels[name]
                if field.letters == "BS":
                    batch[name] = filled(np.where(is_token, label[tokens], IGNORED), IGNORED)
                else:
                    batch[name] = filled(label[examples])
        return batch
