"""Whether two rows differ by more than the noise: a paired comparison over seeds and examples."""

import dataclasses
import math

import numpy as np
from scipy.special import stdtrit

from bertjax.lab.studies.outcome import Figure

_LEVEL = 0.05  # the share of equal rows that are called different


@dataclasses.dataclass(frozen=True)
class StandardError:
    """A standard error, in the figure's unit, and its degrees of freedom: n - 1 for n numbers."""

    value: float
    freedom: float


def standard_error(figure: Figure, baseline: Figure) -> StandardError | None:
    """The standard error of the difference of two figures' means; None: one seed each, no samples.

    Its square is the sum of two variances. The first is over the seeds: of the differences between
    runs at the same place in the list of seeds; or, where the numbers of seeds differ, of both
    means. The second is over the examples: of the differences on the same samples of them. The
    degrees of freedom of a sum of variances are those of Welch and Satterthwaite
    (https://doi.org/10.2307/3002019).
    """
    variances = [*_over_seeds(figure.values, baseline.values), *_over_examples(figure, baseline)]
    if not variances:
        return None
    total = sum(variance for variance, _ in variances)
    squares = sum(variance**2 / freedom for variance, freedom in variances)
    freedom = total**2 / squares if squares else sum(freedom for _, freedom in variances)
    return StandardError(math.sqrt(total), freedom)


def is_clear(difference: float, error: StandardError | None) -> bool | None:
    """Whether a difference is more than noise, by a two-sided t test at the level of 5 %."""
    if error is None:
        return None
    return abs(difference) > float(stdtrit(error.freedom, 1 - _LEVEL / 2)) * error.value


def _over_seeds(values: tuple[float, ...], baseline: tuple[float, ...]) -> list[tuple[float, int]]:
    """(variance of a mean, its degrees of freedom) of each term."""
    if min(len(values), len(baseline)) < 2:
        return []
    if len(values) == len(baseline):
        return [_of_mean(np.subtract(values, baseline))]
    return [_of_mean(values), _of_mean(baseline)]


def _of_mean(values: np.ndarray | tuple[float, ...]) -> tuple[float, int]:
    return float(np.var(values, ddof=1)) / len(values), len(values) - 1


def _over_examples(figure: Figure, baseline: Figure) -> list[tuple[float, int]]:
    if figure.resampled is None or baseline.resampled is None:
        return []
    samples = figure.resampled.mean(0) - baseline.resampled.mean(0)
    return [(float(np.var(samples, ddof=1)), len(samples) - 1)]
