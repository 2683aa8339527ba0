"""The health status on lines of metrics: each kind, and no false alarm."""

import math
from types import SimpleNamespace

import pytest

from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from bertjax.training.health import (
    DIVERGING,
    HEALTHY,
    HELDOUT,
    PLATEAU,
    TRAIN,
    UNKNOWN,
    HealthRules,
    PhaseSteps,
)

BASELINE = 6.5
TOKENS = 1_000  # of an update
CONSTANT = "constant next-sentence"


_MASKED_LM = MaskedLM()


def health(tokens=TOKENS, warmup=4, objective=_MASKED_LM) -> HealthRules:
    """The rules of a run of one phase."""
    return HealthRules(objective, (PhaseSteps(200_000, tokens),), warmup, BASELINE)


def held_out(step, loss, accuracy=0.2, **more):
    return {"step": step, "split": HELDOUT, "loss": loss + 0.7, "mlm_loss": loss} | {
        "mlm_accuracy": accuracy,
        **more,
    }


def train(step, loss):
    return {"step": step, "split": TRAIN, "loss": loss + 0.7, "mlm_loss": loss}


def both(steps, losses, accuracy=0.2):
    """A line of training and an evaluation at each step, with the same loss."""
    lines = [
        (train(step, x), held_out(step, x, accuracy)) for step, x in zip(steps, losses, strict=True)
    ]
    return [row for pair in lines for row in pair]


def test_tokens_are_counted_over_phases():
    two = HealthRules(MaskedLM(), (PhaseSteps(10, 100), PhaseSteps(30, 3_000)), 0, None)
    assert [two.tokens(step) for step in (0, 4, 10, 11, 30, 99)] == [
        *(0, 400, 1_000, 4_000, 61_000, 61_000)
    ]


@pytest.mark.parametrize("rows", [[], [train(10, 5.0)], [{"step": 1, "split": HELDOUT}]])
def test_before_an_evaluation_nothing_is_known(rows):
    assert health().status(rows) == (UNKNOWN, "no evaluation yet")


def test_below_the_baseline_a_run_is_healthy():
    status = health().status([held_out(500, 6.4), held_out(1_000, 4.05, 0.4)])
    assert not status.is_bad
    assert str(status) == (
        "healthy: held-out mlm_loss 4.05 (unigram baseline 6.50), mlm_accuracy 40.0%, "
        "after 1.0 M tokens"
    )
    assert health().status([held_out(1_000, 6.34)]).name == HEALTHY
    near = health().status([held_out(1_000, 6.36)])
    assert near.name == UNKNOWN and near.says.endswith("; it does not use the context yet")


def test_the_plateau_may_last_long():
    """Both 10,000 updates and 50 million tokens after the warm-up."""

    def name_at(step, tokens, loss=6.45):
        rows = both((step - 10, step), (loss, loss))
        status = health(tokens=tokens, warmup=1_000).status(rows)
        assert status.is_bad == status.says.endswith(f"the warm-up. {MaskedLM().advice}")
        return status.name

    assert name_at(10_900, 100_000) == UNKNOWN and name_at(11_000, 100_000) == PLATEAU
    assert name_at(50_900, 1_000) == UNKNOWN and name_at(51_000, 1_000) == PLATEAU
    assert name_at(90_000, 100_000, loss=6.3) == HEALTHY
    assert name_at(90_000, 100_000, loss=7.5) == PLATEAU


def test_a_rise_of_both_losses_diverges():
    rows = both(range(100, 600, 100), (6.0, 5.0, 5.1, 5.8, 6.2))
    kinds = [health().status(rows[:end]).name for end in range(2, 11, 2)]
    assert kinds == [HEALTHY] * 4 + [DIVERGING]
    assert "the best before was 5.00" in health().status(rows).says


@pytest.mark.parametrize("rise, name", [(0.49, HEALTHY), (0.51, DIVERGING)])
def test_a_rise_is_half_a_nat_above_the_best(rise, name):
    """Both of the last two evaluations, and the mean training loss between them."""
    rows = both((100, 200, 300), (5.0, 5.0 + rise, 6.0))
    assert health().status(rows).name == name
    rows = both((100, 200), (5.0, 6.0))
    rows += [train(250, 5.0), train(300, 5.0 + 2 * rise), held_out(300, 6.0)]
    assert health().status(rows).name == name


def test_a_spike_does_not_diverge():
    rows = both(range(100, 700, 100), (6.0, 5.0, 7.0, 5.2, 4.9, 4.8))
    assert {health().status(rows[:end]).name for end in range(2, 13, 2)} == {HEALTHY, UNKNOWN}


def test_what_is_learned_by_heart_does_not_diverge():
    rows = both(range(100, 600, 100), (6.0, 5.0, 5.1, 5.8, 6.2))
    for row in rows:
        if row["split"] == TRAIN:
            row["mlm_loss"] = 6.0 - row["step"] / 100
    assert health().status(rows).name == HEALTHY


def test_another_phase_has_other_losses():
    two = HealthRules(MaskedLM(), (PhaseSteps(300, 100), PhaseSteps(600, 100)), 0, None)
    rows = both(range(100, 600, 100), (5.0, 4.0, 3.0, 4.5, 4.4))
    assert two.status(rows).name == UNKNOWN


def test_the_borders_that_a_chart_shows():
    """A run is healthy below one, and diverges above the other, which is that of its phase."""
    two = HealthRules(MaskedLM(), (PhaseSteps(300, 100), PhaseSteps(600, 100)), 0, BASELINE)
    rows = both(range(100, 600, 100), (5.0, 4.0, 3.0, 4.5, 4.4))
    assert two.healthy_below == pytest.approx(6.35)
    assert two.diverging_above(rows) == (500, pytest.approx(4.9))
    assert two.diverging_above(rows[:4]) == (200, pytest.approx(4.5))
    assert two.diverging_above(rows[:6]) == (300, pytest.approx(3.5))
    rows.append(held_out(600, math.nan))
    assert two.diverging_above(rows) == (500, pytest.approx(4.9))
    rows.append(held_out(601, 4.5))
    assert two.diverging_above(rows) == (500, pytest.approx(4.9))
    assert two.diverging_above([train(1, 5.0)]) is None
    assert HealthRules(MaskedLM(), two.stages, 0, None).healthy_below is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_diverges(value):
    status = health().status([held_out(100, 5.0), held_out(200, value)])
    assert status.name == DIVERGING and "it must be finite" in status.says


def _answers(loss, *shares):
    return [
        held_out(1_000 * number, loss, nsp_random_answers=share)
        for number, share in enumerate(shares, 1)
    ]


@pytest.mark.parametrize(
    "rows, name",
    [
        (_answers(4.9, 1.0, 1.0, 1.0), CONSTANT),
        (_answers(4.9, 1.0, 0.0, 1.0), CONSTANT),  # the same for all pairs of an evaluation
        (_answers(4.9, 1.0, 0.4, 1.0), HEALTHY),
        (_answers(4.9, 1.0, 1.0), HEALTHY),
        (_answers(5.1, 1.0, 1.0, 1.0), HEALTHY),  # the context is not used much yet
        (_answers(6.2, *[1.0] * 10), HEALTHY),
        (_answers(6.2, *[1.0] * 11), CONSTANT),  # 10,000 updates after the warm-up
        (_answers(4.9, 0.4, 0.5, 0.6), HEALTHY),
    ],
)
def test_one_answer_to_every_pair(rows, name):
    status = health(objective=MaskedLMNextSentence()).status(rows)
    assert status.name == name
    assert status.is_bad == ("the next-sentence head answers" in status.says)


def test_evaluations_without_the_answers_are_judged_by_their_loss():
    """As those of a run whose objective was another one before."""
    without = [held_out(1_000 * number, 4.9) for number in (1, 2, 3)]
    for rows in (without, without[:2] + _answers(4.9, *[1.0] * 3)[2:]):
        assert health(objective=MaskedLMNextSentence()).status(rows).name == HEALTHY


def test_an_objective_of_one_s_own_warns_after_the_warm_up():
    """Its main metric is the loss, of which no baseline is known."""
    coin = SimpleNamespace(
        main_metric="loss", accuracy="right", warned="a coin", warning=lambda row: "toss no more"
    )
    rules = HealthRules(coin, (PhaseSteps(100, 8),), 3, None)
    rows = [{"step": step, "split": HELDOUT, "loss": 0.7, "right": 0.5} for step in (1, 2, 3, 4)]
    assert [rules.status(rows[:end]).name for end in (2, 3, 4)] == [UNKNOWN, UNKNOWN, "a coin"]
    says = "held-out loss 0.70, right 50.0%, after 0.0 M tokens; toss no more"
    assert rules.status(rows).says == says
