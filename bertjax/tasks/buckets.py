"""No work on padding: few lengths that batches are padded to, and batches of like length.

Short texts are most of fine-tuning (MRPC: 53 tokens on average, of 128 allowed). A batch is as long
as the shortest bucket that holds its longest example, and each bucket is compiled once.
"""

import functools
import statistics

import numpy as np

_STEP = 8  # lengths are multiples of this
_WINDOW = 16  # batches whose examples are sorted by length together


def choose_lengths(lengths: np.ndarray, max_length: int, most: int) -> tuple[int, ...]:
    """At most `most` bucket lengths, ascending, with the least padding in all.

    The last is the greatest of `lengths`, rounded up (but to no more than `max_length`).

    Args:
      lengths: int [N], each at most `max_length`.
    """
    sizes = np.minimum(-(-np.asarray(lengths) // _STEP) * _STEP, max_length)
    candidates, counts = np.unique(sizes, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])  # examples of shorter candidates
    # cost[j]: padded tokens of all up to candidate j, with some number of buckets.
    cost, chosen = candidates * below[1:], [[c] for c in candidates]
    for _ in range(min(most, len(candidates)) - 1):
        # The bucket before candidates[j] is candidates[i], i < j: [i, j].
        added = candidates * (below[1:] - below[1:, None])
        total = np.where(np.arange(len(cost)) > np.arange(len(cost))[:, None],
                         cost[:, None] + added, np.iinfo(np.int64).max)  # fmt: skip
        best = total.argmin(0)
        better = total.min(0) < cost
        chosen = [
            [*chosen[i], c] if use else old
            for i, c, use, old in zip(best, candidates, better, chosen, strict=True)
        ]
        cost = np.where(better, total.min(0), cost)
    return tuple(int(length) for length in chosen[-1])


def fitting(buckets: tuple[int, ...], length: int) -> int:
    """The shortest bucket that holds `length` tokens."""
    return next(bucket for bucket in buckets if bucket >= length)


class Epochs:
    """The batches of training: each example once an epoch, in an order of its own.

    An epoch's order is random; every 16 batches of it are sorted by length, cut into batches, and
    these come in random order. Only the last batch of the sorting may be smaller.

    Args:
      lengths: int [N], tokens of each example.
      buckets: of `choose_lengths`.

    Attributes:
      steps, steps_per_epoch: how many batches there are.
    """

    def __init__(
        self, lengths: np.ndarray, buckets: tuple[int, ...], batch_size: int, epochs: int, seed: int
    ):
        self._lengths, self._buckets, self._seed = lengths, buckets, seed
        self.batch_size = batch_size
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self.steps = epochs * self.steps_per_epoch
        self._epoch = functools.lru_cache(maxsize=2)(self._order)

    def _order(self, epoch: int) -> list[np.ndarray]:
        rng = np.random.default_rng((self._seed, epoch))
        order, batches = rng.permutation(len(self._lengths)), []
        for start in range(0, len(order), _WINDOW * self.batch_size):
            window = order[start : start + _WINDOW * self.batch_size]
            window = window[np.argsort(-self._lengths[window], kind="stable")]
            batches += np.split(window, range(self.batch_size, len(window), self.batch_size))
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, step: int) -> tuple[np.ndarray, int]:
        """The examples of a batch, at most `batch_size`, and the bucket they go into."""
        epoch, number = divmod(step, self.steps_per_epoch)
        examples = self._epoch(epoch)[number]
        return examples, fitting(self._buckets, int(self._lengths[examples].max()))

    @property
    def mean_length(self) -> float:
        """Of the batches of the first epoch, with their padding."""
        return statistics.mean(self.batch(step)[1] for step in range(self.steps_per_epoch))


def in_order_of_length(
    lengths: np.ndarray, buckets: tuple[int, ...], rows: dict[int, int]
) -> list[tuple[np.ndarray, int]]:
    """All examples in batches, the longest first: (examples, bucket), for prediction.

    Args:
      rows: bucket -> examples of a batch in it, at most.
    """
    order = np.argsort(-lengths, kind="stable")
    inside = np.array([fitting(buckets, int(length)) for length in lengths[order]])
    batches = []
    for bucket in reversed(buckets):
        members = order[inside == bucket]
        for start in range(0, len(members), rows[bucket]):
            batches.append((members[start : start + rows[bucket]], bucket))
    return batches
