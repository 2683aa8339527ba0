"""A scaling law: it is found again from runs that follow it, and its best size is the formula's."""

import numpy as np
import pytest

from bertjax.lab.studies import scaling_law
from bertjax.lab.studies.ladder import Lead, budgets, described, law_of, lead
from bertjax.lab.studies.scaling_law import Law, Run, best_size, fit, resampled

LAW = Law(np.log(1.7), np.log(406.0), np.log(411.0), 0.34, 0.28)  # that of arXiv 2203.15556


@pytest.fixture(scope="module", autouse=True)
def few_starts():
    """Four starts of 27, because each takes a third of a second; two end at a worse law."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling_law, "_EXPONENTS", (0.2, 1.0))
        patch.setattr(scaling_law, "_LEAST", (1.5,))
        yield


def made(law=LAW, noise=0.0, seed=0, sizes=(1e5, 3e5, 1e6, 4e6), flops=(1e15, 3e15, 9e15)):
    random = np.random.default_rng(seed)
    return [
        Run(n, c / (6 * n), c, law.loss(n, c / (6 * n)) * np.exp(noise * random.normal()))
        for c in flops
        for n in sizes
    ]


def test_the_loss_of_a_law():
    assert LAW.loss(1e6, 1e8) == pytest.approx(1.7 + 406 / 1e6**0.34 + 411 / 1e8**0.28)
    assert LAW.exponent == pytest.approx(0.28 / 0.62)


def test_a_law_is_found_again():
    assert fit(made()) == pytest.approx(LAW, rel=1e-3)


def test_the_interval_has_the_truth():
    """With 0.3 % of noise, 90 % of the samples' laws are around the true loss at the runs' end."""
    runs = made(noise=0.003)
    law = fit(runs)
    laws = resampled(runs, law, 20)
    low, high = np.percentile([each.loss(4e6, 1e9) for each in laws], (5, 95))
    assert low < LAW.loss(4e6, 1e9) < high and 0 < high - low < 0.5
    assert resampled(runs, law, 3) == laws[:3]


def test_the_best_size_for_a_budget():
    """Near its minimum, a law is a parabola over log N; the minimum is that of equation 4."""
    _, a, b = np.exp(LAW[:3])
    best = ((LAW.alpha * a) / (LAW.beta * b)) ** (1 / (LAW.alpha + LAW.beta))
    best *= (1e18 / 6) ** LAW.exponent
    runs = made(sizes=[best * each for each in (0.7, 0.9, 1.2, 1.3)], flops=[1e18])
    found = best_size(runs)
    assert found.parameters == pytest.approx(best, rel=0.02)
    assert found.loss == pytest.approx(LAW.loss(best, 1e18 / 6 / best), rel=1e-4)
    assert best_size(runs[:2]) is None
    larger = made(sizes=[best * each for each in (2.0, 4.0, 7.0)], flops=[1e18])
    assert best_size(larger) is None


def test_budgets_of_about_as_many_operations():
    """They differ by at most a tenth of the smallest."""
    flops = {1: 3.0, 2: 1.0, 3: 1.08, 4: 3.2, 5: 1.16, 6: 1.1}
    runs = [Run(n, 1.0, c, 1.0) for n, c in flops.items()]
    found = [[run.parameters for run in group] for group in budgets(runs).values()]
    assert found == [[2, 3, 6], [5], [1, 4]]
    assert list(budgets(runs)) == pytest.approx([1.06, 1.16, 3.1])


def test_what_is_said_of_runs():
    found = described(made(), {"large": (85e6, 1.3e11)})
    assert law_of(found) == pytest.approx(LAW, rel=1e-3)
    assert found["at"]["large"]["value"] == pytest.approx(LAW.loss(85e6, 1.3e11), rel=1e-3)
    assert [each["flops"] for each in found["best_sizes"]] == pytest.approx([1e15, 3e15, 9e15])
    few = described(made(flops=[1e15]), {})
    assert few["law"] is None and "5" in few["why"]


def test_a_lead_that_grows_with_size():
    """One kind is 0.1 nats better at 1e5 parameters, and 0.05 more with each tenfold size."""
    worse = made(noise=0.01)
    better = [r._replace(loss=r.loss - 0.1 - 0.05 * np.log10(r.parameters / 1e5)) for r in worse]
    found = lead(better, worse[::-1])
    mean = np.mean([0.1 + 0.05 * np.log10(run.parameters / 1e5) for run in worse])
    assert found == Lead(*map(pytest.approx, (mean, 0.05)), pytest.approx(0, abs=1e-9), 12)
    assert lead(better[:2], worse[:2]) is None
