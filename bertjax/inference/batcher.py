"""Runs a model over sequences of any lengths, in batches; all inference uses it."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from bertjax.tasks.buckets import fitting
from bertjax.training.sharding.placement import HostBatch, Placement, inference_tokens


class Batcher:
    """Batches of sequences of similar length, the longest first; or of sequences in their order.

    Each batch is padded to the shortest bucket that holds its longest sequence, so few shapes are
    compiled. The next batch is launched before the results of the previous one are fetched.

    Args:
      placement: the devices; each computes a share of every batch.
      batch_tokens: see `bertjax.training.sharding.placement.inference_tokens`.
    """

    def __init__(self, placement: Placement, batch_tokens: int | None):
        self._placement = placement
        self._batch_tokens = inference_tokens(batch_tokens)

    def rows(self, tokens: int, examples: int | None = None) -> int:
        """The rows of a batch that fills all devices.

        Args:
          tokens: the length of each row, with padding.
          examples: their number, if a batch shall have no more rows than they need.
        """
        devices = self._placement.mesh.size
        rows = max(1, self._batch_tokens // tokens)
        if examples is not None:
            rows = min(rows, -(-examples // devices))
        return devices * rows

    def run(
        self,
        lengths: np.ndarray,
        buckets: tuple[int, ...],
        rows: Callable[[int], int],
        make: Callable[[np.ndarray, int, int], HostBatch],
        compute: Callable[[dict[str, jax.Array]], Any],
        in_turn: int = 0,
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Yields (numbers of sequences, their outputs on the host) for each batch.

        Args:
          lengths: the length of each sequence.
          buckets: the lengths of batches, ascending; the last one holds the longest sequence.
          rows: bucket -> the rows of a batch.
          make: (numbers of sequences, rows, bucket) -> the arrays of a batch with so many rows.
          compute: a batch on the devices -> its outputs.
          in_turn: if given, each batch has the next so many sequences.
        """
        launched: deque[tuple[np.ndarray, Any]] = deque()
        batches = (
            in_order(lengths, buckets, in_turn)
            if in_turn
            else in_order_of_length(lengths, buckets, rows)
        )
        for numbers, bucket in batches:
            count = rows(bucket)
            arrays = make(numbers, count, bucket)
            batch = self._placement.put(partial(_rows_of, arrays), count)
            with self._placement.active():
                launched.append((numbers, compute(batch)))
            if len(launched) > 1:
                yield _fetched(*launched.popleft())
        while launched:
            yield _fetched(*launched.popleft())


def _rows_of(arrays: HostBatch, held: slice) -> HostBatch:
    return {name: array[held] for name, array in arrays.items()}


def _fetched(numbers: np.ndarray, outputs: Any) -> tuple[np.ndarray, Any]:
    return numbers, jax.device_get(outputs)


def in_order_of_length(
    lengths: np.ndarray, buckets: tuple[int, ...], rows: Callable[[int], int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts sequences into batches, the longest first; yields (numbers of sequences, bucket).

    Args:
      rows: bucket -> the most sequences of a batch of this length.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        bucket = fitting(buckets, int(lengths[order[0]]))
        yield order[: rows(bucket)], bucket
        order = order[rows(bucket) :]


def in_order(
    lengths: np.ndarray, buckets: tuple[int, ...], count: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts sequences into batches of `count` in their order; yields (numbers, bucket)."""
    for begin in range(0, len(lengths), count):
        numbers = np.arange(begin, min(begin + count, len(lengths)))
        yield numbers, fitting(buckets, int(lengths[numbers].max()))
