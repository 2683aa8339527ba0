"""No work on padding: few lengths to pad to, and batches computed in parts of like length.

Short texts are most of fine-tuning (MRPC: 53 tokens on average, of 128 allowed). A batch is drawn
at random, sorted by length, and cut into parts. A part is as long as the shortest bucket that holds
its longest example, and each bucket is compiled once. The parts' gradients add to that of the
batch. (Batches that are of like length themselves cost named entities a point of F1.)
"""

import functools
import statistics

import numpy as np

_STEP = 8  # lengths are multiples of this
_SAMPLE = 256  # batches, to choose from


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


def choose_rows(
    lengths: np.ndarray,
    buckets: tuple[int, ...],
    batch_size: int,
    *,
    devices: int,
    most: float,
    cost: float,
) -> int:
    """Examples of each part of a batch, for the least work: a multiple of `devices`.

    Args:
      lengths: int [N], tokens of each example.
      devices: that a part is spread over.
      most: tokens of a part on each device, at most, if one example has no more.
      cost: of a part on each device beside that of its tokens, as so many of them.
    """
    some = np.random.default_rng(0).permutation(lengths)[: _SAMPLE * batch_size]
    whole = len(some) - len(some) % batch_size or len(some)
    batches = -np.sort(-some[:whole].reshape(-1, min(batch_size, whole)), axis=1)
    work = {}
    for share in range(-(-batch_size // devices), 0, -1):  # examples of one device
        if share * buckets[-1] <= most or share == 1:
            longest = batches[:, :: share * devices]  # of each part
            tokens = np.take(buckets, np.searchsorted(buckets, longest)).sum(1).mean()
            work[share * devices] = share * tokens + longest.shape[1] * cost
    return min(work, key=work.get)


class Epochs:
    """The batches of training: each example once an epoch, in a random order.

    Only the last batch of an epoch may be smaller.

    Args:
      lengths: int [N], tokens of each example.
      buckets: of `choose_lengths`.
      rows: examples of each part of a batch, at most.

    Attributes:
      steps, steps_per_epoch: how many batches there are.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        buckets: tuple[int, ...],
        batch_size: int,
        epochs: int,
        seed: int,
        rows: int,
    ):
        self._lengths, self._buckets, self._seed = lengths, buckets, seed
        self.batch_size, self.rows = batch_size, rows
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self.steps = epochs * self.steps_per_epoch
        self._order = functools.lru_cache(maxsize=2)(self._new_order)

    def _new_order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(len(self._lengths))

    def batch(self, step: int) -> np.ndarray:
        """The examples of a batch, at most `batch_size`, the longest first."""
        epoch, number = divmod(step, self.steps_per_epoch)
        start = number * self.batch_size
        examples = self._order(epoch)[start : start + self.batch_size]
        return examples[np.argsort(-self._lengths[examples], kind="stable")]

    def parts(self, step: int) -> list[tuple[np.ndarray, int]]:
        """The parts of a batch: their examples, at most `rows`, and the bucket they go into."""
        examples = self.batch(step)
        parts = np.split(examples, range(self.rows, len(examples), self.rows))
        return [(part, fitting(self._buckets, int(self._lengths[part[0]]))) for part in parts]

    @functools.cached_property
    def tokens(self) -> float:
        """Positions of a batch, with all padding; the mean over the first epoch."""
        steps = range(self.steps_per_epoch)
        return self.rows * statistics.mean(
            sum(bucket for _, bucket in self.parts(step)) for step in steps
        )


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
