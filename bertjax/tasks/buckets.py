"""Saves work on padding: a few bucket lengths, and microbatches of similar length.

Most texts of fine-tuning are short (MRPC has 53 tokens on average, of 128 allowed). A batch is
drawn at random, sorted by length, and cut into microbatches. Each is padded to the shortest bucket
that holds its longest example, and each bucket is compiled once. The gradients of the microbatches
add up to the gradient of the batch. (If whole batches had examples of similar length, named
entities would lose a point of F1.)
"""

import functools
import statistics

import numpy as np

_STEP = 8  # lengths are multiples of this
_SAMPLE = 256  # the number of batches that `choose_rows` looks at


def choose_lengths(lengths: np.ndarray, max_length: int, most: int) -> tuple[int, ...]:
    """Chooses at most `most` bucket lengths, ascending, such that padding is least.

    The last bucket is the greatest of `lengths` [N], rounded up but at most `max_length`.
    """
    sizes = np.minimum(-(-np.asarray(lengths) // _STEP) * _STEP, max_length)
    candidates, counts = np.unique(sizes, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])  # the number of shorter examples
    # cost[j]: the padded tokens of all examples up to candidate j, with the best buckets so far.
    cost, chosen = candidates * below[1:], [[c] for c in candidates]
    for _ in range(min(most, len(candidates)) - 1):
        # Row i, column j: the bucket before candidates[j] is candidates[i], with i < j.
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
    """Chooses how many examples a microbatch has, a multiple of `devices`, such that work is least.

    Args:
      lengths: int [N], the tokens of each example.
      devices: the number of devices that share a microbatch.
      most: the most tokens that one device may get; a single example may exceed it.
      cost: the fixed cost of a microbatch on each device, in tokens that take as long to compute.
    """
    sample = np.random.default_rng(0).permutation(lengths)[: _SAMPLE * batch_size]
    whole = len(sample) - len(sample) % batch_size or len(sample)
    batches = -np.sort(-sample[:whole].reshape(-1, min(batch_size, whole)), axis=1)
    work = {}
    for share in range(-(-batch_size // devices), 0, -1):  # the examples of one device
        if share * buckets[-1] <= most or share == 1:
            longest = batches[:, :: share * devices]  # the longest example of each microbatch
            tokens = np.take(buckets, np.searchsorted(buckets, longest)).sum(1).mean()
            work[share * devices] = share * tokens + longest.shape[1] * cost
    return min(work, key=work.__getitem__)


class Epochs:
    """The batches of training: an epoch has each example once, in a random order."""

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

    def microbatches(self, step: int) -> list[tuple[np.ndarray, int]]:
        """The microbatches of a batch: the examples of each, at most `rows`, and its bucket."""
        examples = self.batch(step)
        slices = np.split(examples, range(self.rows, len(examples), self.rows))
        return [
            (slice_, fitting(self._buckets, int(self._lengths[slice_[0]]))) for slice_ in slices
        ]

    @functools.cached_property
    def tokens(self) -> float:
        """The number of positions of a batch, padding included; the mean over the first epoch."""
        steps = range(self.steps_per_epoch)
        return self.rows * statistics.mean(
            sum(bucket for _, bucket in self.microbatches(step)) for step in steps
        )
