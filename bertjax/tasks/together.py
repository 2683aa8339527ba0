"""The order of the batches of several tasks, each batch of one task (MT-DNN, arXiv 1901.11504)."""

import functools
from collections.abc import Mapping

import numpy as np


class Together:
    """Draws the task of each batch.

    An epoch has as many batches as the tasks have together, in a random order. With a power of 1 it
    has each batch of each task once (algorithm 1 of the paper). With a lower power, a task of n
    batches has a share of the epoch in proportion to n ** power: small tasks come more often, and
    begin again; large ones go on where they were in the epoch before.

    Args:
      sizes: the name of a task -> the batches of one epoch of it.
      power: from 0, all tasks come equally often, to 1.

    Attributes:
      drawn: the name of a task -> its batches in an epoch; at least 1.
      steps_per_epoch: the batches of an epoch.
    """

    def __init__(self, sizes: Mapping[str, int], power: float, seed: int):
        self._names, self._seed = tuple(sizes), seed
        total = sum(sizes.values())
        weights = np.array(list(sizes.values()), np.float64) ** power
        exact = total * weights / weights.sum()
        counts = np.maximum(np.floor(exact + 1e-9).astype(np.int64), 1)
        largest_remainders = np.argsort(counts - exact, kind="stable")
        counts[largest_remainders[: max(total - counts.sum(), 0)]] += 1
        self.drawn = dict(zip(self._names, counts.tolist(), strict=True))
        self.steps_per_epoch = int(counts.sum())
        self._order = functools.lru_cache(maxsize=2)(self._new_order)

    def _new_order(self, epoch: int) -> np.ndarray:
        tasks = np.repeat(np.arange(len(self._names)), list(self.drawn.values()))
        # Another stream than that of the examples of a task, whose key is (seed, epoch).
        return np.random.default_rng((self._seed, epoch, len(tasks))).permutation(tasks)

    def locate(self, step: int) -> tuple[str, int]:
        """The task of a step, and the number of the batch among all of that task, from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = self._order(epoch)
        name = self._names[order[place]]
        return name, epoch * self.drawn[name] + int((order[:place] == order[place]).sum())
