"""Which source an example comes from, and how many of that source came before it."""

import numpy as np

from bertjax.errors import InputError

_BLOCK = 4096


class Mixture:
    """Sources mixed by share, exactly, in every block of 4096 examples.

    Every block has the same pattern, with as many places for a source as its share says, so
    that the rank of an example within its source follows from its index alone: a source is
    read in its own order, without repetition, however it is mixed.

    Args:
      shares: one for each source, summing to 1; rounded to 1/4096.
      draws: decides the pattern.

    Raises:
      InputError: a share too small to be seen in a block.
    """

    def __init__(self, shares: np.ndarray, draws):
        exact = np.asarray(shares) * _BLOCK
        places = np.floor(exact).astype(np.int64)
        largest_remainders = np.argsort(places - exact, kind="stable")
        places[largest_remainders[: _BLOCK - places.sum()]] += 1
        if np.any(places == 0):
            raise InputError(
                f"a source has {np.min(shares):.2g} of the examples, less than 1 in {_BLOCK}: "
                "give the sources weights (@WEIGHT) that do not differ so much, or leave it out"
            )
        source = np.repeat(np.arange(len(places)), places)
        self._source = source[np.argsort(draws.keys("mixture", np.arange(_BLOCK)))]
        self._places = places
        self._rank = np.empty(_BLOCK, np.int64)
        for s, count in enumerate(places):
            self._rank[self._source == s] = np.arange(count)

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Example indices int64 [R] -> (source [R], rank within the source [R]), int64."""
        block, place = np.divmod(index, _BLOCK)
        source = self._source[place]
        return source, block * self._places[source] + self._rank[place]
