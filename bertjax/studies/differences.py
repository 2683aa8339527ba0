"""Whether two rows differ by more than the noise: a paired comparison over seeds and examples."""

import math

import numpy as np

from bertjax.studies.outcome import Figure

_CLEAR = 2.0  # standard errors


def standard_error(mine: Figure, theirs: Figure) -> float | None:
    """The standard error of the difference of two figures' means.

    It has two parts, added as variances. Over the seeds: of the differences of runs with the same
    place in the list of seeds, or of both means where the numbers differ. Over the examples: of the
    differences on the same samples of them.

    Returns:
      None if neither is known: one seed each, and no samples.
    """
    parts = [_over_seeds(mine.values, theirs.values), _over_examples(mine, theirs)]
    known = [part for part in parts if part is not None]
    return math.sqrt(sum(known)) if known else None


def is_clear(difference: float, error: float | None) -> bool | None:
    """Whether a difference is more than two of its standard errors; None if they are not known."""
    return None if error is None else abs(difference) > _CLEAR * error


def _over_seeds(mine: tuple[float, ...], theirs: tuple[float, ...]) -> float | None:
    if min(len(mine), len(theirs)) < 2:
        return None
    if len(mine) == len(theirs):
        return float(np.var(np.subtract(mine, theirs), ddof=1)) / len(mine)
    return sum(float(np.var(each, ddof=1)) / len(each) for each in (mine, theirs))


def _over_examples(mine: Figure, theirs: Figure) -> float | None:
    if mine.resampled is None or theirs.resampled is None:
        return None
    return float(np.var(mine.resampled.mean(0) - theirs.resampled.mean(0), ddof=1))
