"""The verdict on lines of metrics: each kind, bands, and no false alarm."""

import math

import numpy as np
import pytest

from bertjax.objectives.masked_lm import MASKED_LM, MASKED_LM_NEXT_SENTENCE
from bertjax.training.verdict import (
    ABOVE,
    DIVERGING,
    HEALTHY,
    HELDOUT,
    PLATEAU,
    TRAIN,
    UNKNOWN,
    Band,
    Curve,
    Health,
    Stage,
)

WITHOUT_CONTEXT = 6.5
TOKENS = 1_000  # of an update
CONSTANT = "constant next-sentence"


def curve(*points) -> Curve:
    """Points (tokens, loss, accuracy)."""
    return Curve(*(np.array(column, float) for column in zip(*points, strict=True)))


LEFT = Band(
    "two runs",
    (
        curve((10_000, 7.5, 0.1), (100_000, 6.0, 0.2), (1_000_000, 4.0, 0.4)),
        curve((20_000, 7.2, 0.12), (1_000_000, 3.8, 0.44)),
    ),
    TOKENS,
    (0.3, 0.05),
)


def health(band=None, last_step=200_000, tokens=TOKENS, warmup=4, objective=MASKED_LM) -> Health:
    """The rules of a run of one phase."""
    return Health(
        (Stage(last_step, tokens, band, "no band for it"),),
        warmup,
        WITHOUT_CONTEXT,
        objective.warning,
        objective.warned,
    )


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


# ----------------------------------------------------------------------------------- the band


def test_a_band_is_the_envelope_of_its_curves_and_the_margin():
    """At 100,000 tokens the second curve is between its points, by the logarithm of the tokens."""
    share = math.log(5) / math.log(50)
    loss, accuracy = 7.2 - share * 3.4, 0.12 + share * 0.32
    bounds = LEFT.at(100_000)
    assert bounds.loss == pytest.approx((min(loss, 6.0) - 0.3, max(loss, 6.0) + 0.3))
    assert bounds.accuracy == pytest.approx((0.2 - 0.05, accuracy + 0.05))
    assert LEFT.at(10_000).loss == pytest.approx((7.2, 7.8))  # of the curve that is there
    assert LEFT.at(1_000_000).accuracy == pytest.approx((0.35, 0.49))
    assert LEFT.at(9_999) is None and LEFT.at(1_000_001) is None


def test_tokens_are_counted_over_phases():
    two = Health(
        (Stage(10, 100, LEFT), Stage(30, 3_000, None)), 0, None, MASKED_LM.warning, "warned"
    )
    assert [two.tokens(step) for step in (0, 4, 10, 11, 30, 99)] == [
        *(0, 400, 1_000, 4_000, 61_000, 61_000)
    ]


def test_larger_batches_are_compared_by_updates_and_smaller_ones_by_tokens():
    assert health(LEFT).bounds(100) == LEFT.at(100_000)
    assert health(LEFT, tokens=50 * TOKENS).bounds(100) == LEFT.at(100_000)
    assert health(LEFT, tokens=TOKENS // 2).bounds(100) == LEFT.at(50_000)


def test_a_band_counts_after_the_warm_up():
    assert health(LEFT, warmup=30).bounds(59) is None
    assert health(LEFT, warmup=30).bounds(60) == LEFT.at(60_000)


# ------------------------------------------------------------------------------- the verdicts


@pytest.mark.parametrize(
    "rows, kind",
    [
        ([held_out(100, 6.0), held_out(1_000, 4.25, 0.36)], HEALTHY),
        ([held_out(100, 6.0), held_out(1_000, 3.0, 0.6)], HEALTHY),  # better than the band
        ([held_out(500, 5.5), held_out(1_000, 4.35, 0.4)], ABOVE),
        ([held_out(100, 6.0), held_out(1_000, 4.35, 0.4)], HEALTHY),  # once is not enough
        ([held_out(500, 4.5, 0.2), held_out(1_000, 4.0, 0.34)], ABOVE),  # by the accuracy
        ([held_out(999, 4.35, 0.4)], HEALTHY),  # there will be others
        ([held_out(1_000, 4.35, 0.4)], ABOVE),  # the only evaluation
        ([held_out(9, 9.0)], UNKNOWN),  # before the band's beginning
        ([], UNKNOWN),
        ([train(10, 5.0)], UNKNOWN),
    ],
)
def test_beside_the_band(rows, kind):
    assert health(LEFT, last_step=1_000).verdict(rows).kind == kind


def test_the_line():
    verdict = health(LEFT).verdict([held_out(1_000, 4.05, 0.4)])
    assert not verdict.is_bad
    assert str(verdict) == (
        "healthy: held-out masked-LM loss 4.05 (6.50 without context), accuracy 40.0%, "
        "after 1.0 M tokens; band 3.50 to 4.30, 35.0% to 49.0%, of two runs"
    )
    assert str(health().verdict([held_out(1_000, 4.05, 0.4)])) == (
        "unknown: held-out masked-LM loss 4.05 (6.50 without context), accuracy 40.0%, "
        "after 1.0 M tokens; no band for it"
    )


def test_it_stays_on_the_plateau_that_the_band_has_left():
    steps = range(20, 1_001, 20)
    flat = both(steps, np.full(len(steps), 6.45))
    found = [health(LEFT).verdict(flat[:end]) for end in range(2, len(flat) + 1, 2)]
    # The margin is part of the band: all of it must be 0.15 below the loss without context.
    worst = [LEFT.at(step * TOKENS).loss[1] for step in steps]
    assert [v.kind == PLATEAU for v in found] == [w < WITHOUT_CONTEXT - 0.15 for w in worst]
    assert {v.kind for v in found} >= {PLATEAU, HEALTHY}
    assert found[-1].is_bad and "no better than a guess by the frequencies" in found[-1].says


def test_without_a_band_the_plateau_may_last_long():
    """Both 10,000 updates and 50 million tokens after the warm-up."""

    def kind(step, tokens, loss=6.45):
        rows = both((step - 10, step), (loss, loss))
        return health(tokens=tokens, warmup=1_000).verdict(rows).kind

    assert kind(10_900, 100_000) == UNKNOWN and kind(11_000, 100_000) == PLATEAU
    assert kind(50_900, 1_000) == UNKNOWN and kind(51_000, 1_000) == PLATEAU
    assert kind(90_000, 100_000, loss=6.3) == UNKNOWN
    assert kind(90_000, 100_000, loss=7.5) == PLATEAU


def test_a_rise_of_both_losses_diverges():
    rows = both(range(100, 600, 100), (6.0, 5.0, 5.1, 5.8, 6.2))
    kinds = [health().verdict(rows[:end]).kind for end in range(2, 11, 2)]
    assert kinds == [UNKNOWN] * 4 + [DIVERGING]
    assert "the best before was 5.00" in health().verdict(rows).says
    assert health(LEFT).verdict(rows).kind == DIVERGING  # rather than above the band


@pytest.mark.parametrize("rise, kind", [(0.49, UNKNOWN), (0.51, DIVERGING)])
def test_a_rise_is_half_a_nat_above_the_best(rise, kind):
    """Both of the last two evaluations, and the mean training loss between them."""
    rows = both((100, 200, 300), (5.0, 5.0 + rise, 6.0))
    assert health().verdict(rows).kind == kind
    rows = both((100, 200), (5.0, 6.0))
    rows += [train(250, 5.0), train(300, 5.0 + 2 * rise), held_out(300, 6.0)]
    assert health().verdict(rows).kind == kind


def test_a_spike_does_not_diverge():
    rows = both(range(100, 700, 100), (6.0, 5.0, 7.0, 5.2, 4.9, 4.8))
    assert {health().verdict(rows[:end]).kind for end in range(2, 13, 2)} == {UNKNOWN}


def test_what_is_learned_by_heart_does_not_diverge():
    rows = both(range(100, 600, 100), (6.0, 5.0, 5.1, 5.8, 6.2))
    for row in rows:
        if row["split"] == TRAIN:
            row["mlm_loss"] = 6.0 - row["step"] / 100
    assert health().verdict(rows).kind == UNKNOWN


def test_another_phase_has_other_losses():
    two = Health((Stage(300, 100, None), Stage(600, 100, None)), 0, None, MASKED_LM.warning, "")
    rows = both(range(100, 600, 100), (5.0, 4.0, 3.0, 4.5, 4.4))
    assert two.verdict(rows).kind == UNKNOWN


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_diverges(value):
    verdict = health().verdict([held_out(100, 5.0), held_out(200, value)])
    assert verdict.kind == DIVERGING and "it must be finite" in verdict.says


def _answers(loss, *shares):
    return [
        held_out(1_000 * number, loss, nsp_random_answers=share)
        for number, share in enumerate(shares, 1)
    ]


@pytest.mark.parametrize(
    "rows, kind",
    [
        (_answers(4.9, 1.0, 1.0, 1.0), CONSTANT),
        (_answers(4.9, 1.0, 0.0, 1.0), CONSTANT),  # the same for all pairs of an evaluation
        (_answers(4.9, 1.0, 0.4, 1.0), UNKNOWN),
        (_answers(4.9, 1.0, 1.0), UNKNOWN),
        (_answers(5.1, 1.0, 1.0, 1.0), UNKNOWN),  # the context is not used much yet
        (_answers(6.2, *[1.0] * 10), UNKNOWN),
        (_answers(6.2, *[1.0] * 11), CONSTANT),  # 10,000 updates after the warm-up
        (_answers(4.9, 0.4, 0.5, 0.6), UNKNOWN),
    ],
)
def test_one_answer_to_every_pair(rows, kind):
    verdict = health(objective=MASKED_LM_NEXT_SENTENCE).verdict(rows)
    assert verdict.kind == kind
    assert verdict.is_bad == ("the next-sentence head answers" in verdict.says)


def test_an_objective_without_words_warns_after_the_warm_up():
    rules = Health((Stage(100, 8, None),), 3, None, lambda row: "a coin", "warned")
    rows = [{"step": step, "split": HELDOUT, "loss": 0.7} for step in (1, 2, 3, 4)]
    assert [rules.verdict(rows[:end]).kind for end in (2, 3, 4)] == [UNKNOWN, UNKNOWN, "warned"]
    assert rules.verdict(rows).says == "held-out loss 0.70, after 0.0 M tokens; a coin"
