"""The draws of several tasks: each has its share, in any order, without a state."""

from collections import Counter

import numpy as np
import pytest

from bertjax.tasks.together import Together

SIZES = {"large": 90, "middle": 31, "small": 7}


@pytest.mark.parametrize(
    ("power", "drawn"),
    [
        (1.0, {"large": 90, "middle": 31, "small": 7}),
        # sqrt: 9.487, 5.568, 2.646 of 17.700; times 128: 68.60, 40.26, 19.13.
        (0.5, {"large": 69, "middle": 40, "small": 19}),
        (0.0, {"large": 43, "middle": 43, "small": 42}),
    ],
)
def test_the_shares_of_an_epoch(power, drawn):
    together = Together(SIZES, power, seed=3)
    assert together.drawn == drawn and together.steps_per_epoch == 128
    for epoch in range(3):
        steps = range(epoch * 128, (epoch + 1) * 128)
        assert Counter(together.locate(step)[0] for step in steps) == drawn


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_every_task_goes_through_its_batches_in_order(power):
    together = Together(SIZES, power, seed=3)
    seen: dict[str, list[int]] = {name: [] for name in SIZES}
    for step in range(3 * together.steps_per_epoch):
        name, number = together.locate(step)
        seen[name].append(number)
    for name, numbers in seen.items():
        assert numbers == list(range(3 * together.drawn[name]))
    # The answer depends on nothing but the step.
    assert [together.locate(step) for step in (300, 5, 131)] == [
        Together(SIZES, power, seed=3).locate(step) for step in (300, 5, 131)
    ]


def test_the_order_is_another_in_each_epoch_and_with_each_seed():
    def order(seed, epoch):
        together = Together(SIZES, 1.0, seed)
        return [together.locate(128 * epoch + step)[0] for step in range(128)]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert all(one != two for one, two in zip(orders, orders[1:] + orders[:1], strict=True))
    # The batches of a task are spread over the epoch.
    places = [place for place, name in enumerate(orders[0]) if name == "large"]
    assert places[0] < 10 and places[-1] > 118 and max(np.diff(places)) < 12


def test_a_tiny_task_comes_in_every_epoch():
    together = Together({"huge": 4_000, "tiny": 1}, 1.0, seed=0)
    assert together.drawn == {"huge": 4_000, "tiny": 1}
    assert Together({"huge": 2, "tiny": 1}, 0.9, seed=0).drawn["tiny"] == 1


def test_one_task_is_in_its_own_order():
    together = Together({"": 5}, 1.0, seed=0)
    assert [together.locate(step) for step in range(12)] == [("", step) for step in range(12)]
