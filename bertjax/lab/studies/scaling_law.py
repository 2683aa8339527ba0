"""A scaling law of runs: the loss falls with parameters and tokens (arXiv 2203.15556)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

_DELTA = 1e-3  # of Huber's loss, over differences of logarithms (section 3.3)
# The starting points: A and B are found for each pair of exponents and each E.
_EXPONENTS, _LEAST = (0.2, 0.5, 1.0), (0.5, 1.5, 3.0)


class Run(NamedTuple):
    """What one run used, and what it reached.

    Attributes:
      parameters: N, those that multiply a token, without embeddings and decoder.
      tokens: D, positions of all batches.
      flops: C, useful operations of all updates.
      loss: L, nats.
    """

    parameters: float
    tokens: float
    flops: float
    loss: float


class Law(NamedTuple):
    """L = E + A / N^alpha + B / D^beta (equation 2), with the logarithms of E, A and B."""

    log_e: float
    log_a: float
    log_b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """The loss of a model of N parameters after D tokens."""
        return float(np.exp(_log_loss(np.array(self), np.log(parameters), np.log(tokens))))

    @property
    def exponent(self) -> float:
        """a in N = G C^a, the best size for C operations (equation 4)."""
        return self.beta / (self.alpha + self.beta)


class Minimum(NamedTuple):
    """The best size for one budget, by a parabola of the loss over log N (approach 2)."""

    parameters: float
    loss: float


def fit(runs: Sequence[Run]) -> Law:
    """The law with the least Huber loss of log L over the runs.

    Raises ValueError for fewer runs than the law has numbers, and for runs of one size or length.
    """
    _check(runs)
    logs = _logs(runs)
    starts = [
        _start(logs, least, alpha, beta)
        for least in _LEAST
        for alpha in _EXPONENTS
        for beta in _EXPONENTS
    ]
    return min((_refined(logs, start) for start in starts), key=lambda pair: pair[0])[1]


def resampled(runs: Sequence[Run], law: Law, number: int, seed: int = 0) -> list[Law]:
    """Laws fitted to `number` samples of the runs, drawn with replacement, from `law` on."""
    random = np.random.default_rng(seed)
    laws: list[Law] = []
    while len(laws) < number:
        sample = [runs[place] for place in random.integers(len(runs), size=len(runs))]
        try:
            _check(sample)
        except ValueError:
            continue
        laws.append(_refined(_logs(sample), np.array(law))[1])
    return laws


def best_size(runs: Sequence[Run]) -> Minimum | None:
    """The minimum of the parabola through runs of one budget; None if it is not between them."""
    if len({run.parameters for run in runs}) < 3:
        return None
    x, y = np.log([run.parameters for run in runs]), [run.loss for run in runs]
    curvature, slope, constant = map(float, np.polyfit(x - x.mean(), y, 2))
    place = -slope / (2 * curvature)
    if curvature <= 0 or not x.min() <= place + x.mean() <= x.max():
        return None
    return Minimum(float(np.exp(place + x.mean())), constant + slope * place / 2)


def _check(runs: Sequence[Run]) -> None:
    if len(runs) < len(Law._fields):
        raise ValueError(f"{len(runs)} runs: a law of 5 numbers needs at least 5")
    for name in ("parameters", "tokens"):
        if len({getattr(run, name) for run in runs}) < 3:
            raise ValueError(f"the runs have fewer than three numbers of {name}")


def _logs(runs: Sequence[Run]) -> np.ndarray:
    return np.log([(run.parameters, run.tokens, run.loss) for run in runs]).T


def _log_loss(law: np.ndarray, log_n: np.ndarray, log_d: np.ndarray) -> np.ndarray:
    log_e, log_a, log_b, alpha, beta = law
    log_terms = log_e + 0 * log_n, log_a - alpha * log_n, log_b - beta * log_d
    return np.logaddexp.reduce(np.stack(log_terms))


def _start(logs: np.ndarray, least: float, alpha: float, beta: float) -> np.ndarray:
    """A law with given E and exponents, whose A and B halve what is above E in the mean."""
    log_n, log_d, log_l = logs
    half = np.log(np.maximum(np.exp(log_l) - least, 1e-3) / 2)
    return np.array(
        [np.log(least), *(np.mean(half + e * x) for e, x in ((alpha, log_n), (beta, log_d)))]
        + [alpha, beta]
    )


def _refined(logs: np.ndarray, start: np.ndarray) -> tuple[float, Law]:
    log_n, log_d, log_l = logs
    found = least_squares(
        lambda law: _log_loss(law, log_n, log_d) - log_l,
        start,
        loss="huber",
        f_scale=_DELTA,
        bounds=([-np.inf] * 3 + [0.0] * 2, [np.inf] * 3 + [3.0] * 2),
    )
    return found.cost, Law(*map(float, found.x))
