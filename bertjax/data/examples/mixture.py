"""The source of each example, and the example's rank within that source."""

import numpy as np

from bertjax.base.errors import InputError
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws

_BLOCK = 4096


def mixture_of(store: TokenStore, draws: Draws, room: int) -> "Mixture":
    """Mixes the sources of a store; InputError if a row has no room for two tokens of text."""
    if room < 2:
        raise InputError(f"the sequence length leaves room for {room} tokens: at least 2")
    return Mixture(np.array([source.share for source in store.sources]), draws)


class Mixture:
    """Mixes sources by their shares, exactly, in every block of 4096 examples.

    Every block has the same random pattern, in which each source has its share, rounded to a
    multiple of 1/4096. So the rank of an example within its source follows from the example's index
    alone, and a source is read in its own order, without repetition, in any mixture.
    """

    def __init__(self, shares: np.ndarray, draws: Draws):
        exact = np.asarray(shares) * _BLOCK
        places = np.floor(exact).astype(np.int64)
        largest_remainders = np.argsort(places - exact, kind="stable")
        places[largest_remainders[: _BLOCK - places.sum()]] += 1
        if np.any(places == 0):
            raise InputError(
                f"a source has {np.min(shares):.2g} of the examples, less than 1 in {_BLOCK}: "
                "give the sources weights (@WEIGHT) that differ less, or leave out this source"
            )
        source = np.repeat(np.arange(len(places)), places)
        self._source = source[np.argsort(draws.keys("mixture", np.arange(_BLOCK)))]
        self._places = places
        self._rank = np.empty(_BLOCK, np.int64)
        for s, count in enumerate(places):
            self._rank[self._source == s] = np.arange(count)

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Maps example indices int64 [R] to (source [R], rank within the source [R]), int64."""
        block, place = np.divmod(index, _BLOCK)
        source = self._source[place]
        return source, block * self._places[source] + self._rank[place]
