"""Runs a model over sequences of any lengths, in batches; all inference uses it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from bertjax.base.progress import Progress
from bertjax.inference.rows import Rows
from bertjax.tasks.buckets import fitting
from bertjax.training.model import Arrays
from bertjax.training.sharding.placement import HostBatch, Placement, inference_tokens


class Batcher:
    """Batches of sequences of similar length, the longest first; or of sequences in their order.

    Each batch is padded to the shortest bucket that holds its longest sequence, so few shapes are
    compiled. The next batch is launched before the results of the previous one are fetched.

    Each device computes a share of every batch.
    """

    def __init__(self, placement: Placement, batch_tokens: int | None = None):
        self._placement = placement
        self._batch_tokens = inference_tokens(batch_tokens)

    def rows(self, tokens: int, examples: int | None = None) -> int:
        """The rows of a batch that fills all devices; fewer if so many `examples` need fewer."""
        devices = self._placement.mesh.size
        rows = max(1, self._batch_tokens // tokens)
        if examples is not None:
            rows = min(rows, -(-examples // devices))
        return devices * rows

    def predict(
        self,
        apply: Callable[[Arrays], Any],
        rows: Rows,
        buckets: tuple[int, ...],
        *,
        size: Callable[[int], int] | None = None,
        in_turn: int = 0,
        progress: Progress | None = None,
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Yields (numbers of sequences, their outputs on every host) for each batch.

        Args:
          apply: a batch on the devices -> a tree of outputs, whose first axis is the rows.
          buckets: the lengths of batches, ascending; the last one holds the longest sequence.
          size: bucket -> the rows of a batch; None: as `rows`, and no more than the sequences need.
          in_turn: if given, each batch has the next so many sequences.
          progress: counts the sequences.
        """
        launched: deque[tuple[np.ndarray, Any]] = deque()
        lengths = rows.lengths
        size = size or (lambda bucket: self.rows(bucket, len(lengths)))
        batches = (
            in_order(lengths, buckets, in_turn)
            if in_turn
            else in_order_of_length(lengths, buckets, size)
        )

        def fetched() -> tuple[np.ndarray, Any]:
            numbers, outputs = launched.popleft()
            outputs = jax.tree.map(lambda array: array[: len(numbers)], jax.device_get(outputs))
            if progress:
                progress.update(len(numbers))
            return numbers, outputs

        for numbers, bucket in batches:
            count = size(bucket)
            arrays = rows.batch(numbers, count, bucket)
            batch = self._placement.put(partial(_rows_of, arrays), count)
            with self._placement.active():
                outputs = jax.device_put(apply(batch), self._placement.replicated)
            launched.append((numbers, outputs))
            if len(launched) > 1:
                yield fetched()
        while launched:
            yield fetched()


def _rows_of(arrays: HostBatch, held: slice) -> HostBatch:
    return {name: array[held] for name, array in arrays.items()}


def up_to(longest: int, lengths: Iterable[int]) -> tuple[int, ...]:
    """The buckets of sequences: those of the lengths, ascending, that are less, and the longest."""
    return (*(length for length in lengths if length < longest), longest)


def in_order_of_length(
    lengths: np.ndarray, buckets: tuple[int, ...], rows: Callable[[int], int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts sequences into batches, the longest first; yields (numbers of sequences, bucket)."""
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
