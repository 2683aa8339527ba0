"""Is a run of pre-training healthy? A verdict on its lines of metrics."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

TRAIN, HELDOUT = "train", "heldout"  # the two kinds of lines
LOSS, ACCURACY = "mlm_loss", "mlm_accuracy"

# The kinds of verdicts, and beside them `Health.warned`.
HEALTHY, ABOVE, PLATEAU, DIVERGING = "healthy", "above the band", "plateau", "diverging"
UNKNOWN = "unknown"

_NEAR = 0.15  # nats: so near to the loss without context, the context is not used
_RISE = 0.5  # nats: no noise, and no rate's first steps, raise the loss so much for two evaluations
_USED = 1.5  # nats: a model so far below the loss without context has learned to use it
# Without a band, a run may stay on the plateau for both of these after the warm-up. The paper's
# warm-up alone has 10,000 updates.
_PATIENT_UPDATES, _PATIENT_TOKENS = 10_000, 50_000_000


class Verdict(NamedTuple):
    """What can be said of a run.

    Attributes:
      kind: one of the kinds above.
      says: a line for the user, without the kind.
    """

    kind: str
    says: str

    @property
    def is_bad(self) -> bool:
        """Whether something is to be done."""
        return self.kind not in (HEALTHY, UNKNOWN)

    def __str__(self) -> str:
        return f"{self.kind}: {self.says}"


class Curve(NamedTuple):
    """Held-out figures of a finished run: arrays [N], by ascending tokens."""

    tokens: np.ndarray
    loss: np.ndarray
    accuracy: np.ndarray


class Bounds(NamedTuple):
    """What is usual at some number of tokens: (least, greatest) of each figure."""

    loss: tuple[float, float]
    accuracy: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Band:
    """The held-out figures of runs of one size and recipe, and those within a margin of them.

    Attributes:
      source: whose curves they are, for messages.
      curves: at least one.
      batch_tokens: positions of one update of these runs, padding included.
      margin: how far a usual run may be from the nearest curve, in nats and as a share.
    """

    source: str
    curves: tuple[Curve, ...]
    batch_tokens: int
    margin: tuple[float, float]

    def at(self, tokens: float) -> Bounds | None:
        """The bounds after so many tokens; None where no curve is.

        Between two points of a curve, the figures are linear in the logarithm of the tokens.
        """
        reaching = [c for c in self.curves if c.tokens[0] <= tokens <= c.tokens[-1]]
        if not reaching:
            return None
        bounds = []
        for name, margin in zip(("loss", "accuracy"), self.margin, strict=True):
            values = [
                float(np.interp(math.log(tokens), np.log(curve.tokens), getattr(curve, name)))
                for curve in reaching
            ]
            bounds.append((min(values) - margin, max(values) + margin))
        return Bounds(*bounds)


class Stage(NamedTuple):
    """The steps of one phase, for a verdict.

    Attributes:
      last_step: see `bertjax.training.loop.Phase`.
      tokens: positions of an update.
      band: None: there is none.
      why: it has no band.
    """

    last_step: int
    tokens: int
    band: Band | None
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Health:
    """The rules for one run.

    Attributes:
      stages: one for each phase, in order.
      warmup_steps: of the optimizer. Bands begin to count after twice as many.
      without_context: the loss (nats) of the best guess that reads no context; None: not known.
      warning: metrics of an evaluation -> the objective's warning, or "".
      warned: the kind of verdict that such warnings are.
    """

    stages: tuple[Stage, ...]
    warmup_steps: int
    without_context: float | None
    warning: Callable[[Mapping[str, float]], str]
    warned: str

    def verdict(self, rows: Sequence[Mapping[str, Any]]) -> Verdict:
        """The verdict after the last of some lines of metrics.jsonl, which are in order."""
        held_out = [row for row in rows if row["split"] == HELDOUT]
        if not held_out:
            return Verdict(UNKNOWN, "no evaluation yet")
        number = self._number(held_out[-1]["step"])
        of_stage = [row for row in held_out if self._number(row["step"]) == number]
        lines = [
            row for row in rows if row["split"] == TRAIN and self._number(row["step"]) == number
        ]
        return (
            self._diverging(of_stage, lines)
            or self._plateau(of_stage)
            or self._warned(held_out)
            or self._beside_band(of_stage)
        )

    def bounds(self, step: int) -> Bounds | None:
        """What is usual after an update.

        With larger batches than the band's, a run makes fewer updates of the same tokens. So each
        of its updates counts as one of the band's batches at most.
        """
        band = self.stages[self._number(step)].band
        if band is None or step < 2 * self.warmup_steps:
            return None
        return band.at(self.tokens(step, most=band.batch_tokens))

    def _number(self, step: int) -> int:
        """The stage of an update."""
        ends = [stage.last_step for stage in self.stages]
        return min(sum(end < step for end in ends), len(ends) - 1)

    def tokens(self, step: int, most: float = math.inf) -> float:
        """The tokens seen after an update, if each update counts `most` at most."""
        total = first = 0
        for stage in self.stages:
            total += max(min(step, stage.last_step) - first, 0) * min(stage.tokens, most)
            first = stage.last_step
        return total

    def _diverging(self, held_out: list, lines: list) -> Verdict | None:
        """Two evaluations far above the best, with a training loss that has risen as well.

        Where only the held-out loss rises, the model learns its training text by heart.
        """
        losses = [_loss(row) for row in held_out]
        if all(map(math.isfinite, losses)):
            best, last = min(losses[:-2], default=math.inf), losses[-2:]
            if min(last) < best + _RISE or not _rises(held_out, lines):
                return None
            figures = f"the best before was {best:.2f}"
        else:
            figures = "it must be finite"
        return Verdict(
            DIVERGING,
            f"{self._figures(held_out[-1])}; {figures}. Usual causes: a learning rate that is too "
            "high, a warm-up that is too short, or damaged text. Lower the rate or lengthen the "
            "warm-up, and begin anew, or from a checkpoint before the rise",
        )

    def _plateau(self, held_out: list) -> Verdict | None:
        """The run does not use the context, though those of the band do, or for very long."""
        if self.without_context is None:
            return None
        row, left = held_out[-1], self.without_context - _NEAR
        if not self._lasts(held_out, lambda row: _loss(row) >= left):
            return None
        step = row["step"]
        usual, updates = self.bounds(step), step - self.warmup_steps
        if usual:
            if usual.loss[1] >= left:
                return None
            others = "the runs of its band have left it"
        else:
            tokens = self.tokens(step) - self.tokens(self.warmup_steps)
            if updates < _PATIENT_UPDATES or tokens < _PATIENT_TOKENS:
                return None
            others = f"{updates:,} updates after the warm-up"
        return Verdict(
            PLATEAU,
            f"{self._figures(row)}: no better than a guess by the frequencies of the words, and "
            f"{others}. Usual causes: a learning rate that is too high or too low for so many "
            "layers, a warm-up that is too short, or few updates. Try a third of the rate, and "
            "three times the rate; or config.model.encoder='modernbert', which leaves it sooner",
        )

    def _warned(self, held_out: list) -> Verdict | None:
        """The objective warns at three evaluations, and the run is no longer at its beginning."""
        warnings = [self.warning(row) for row in held_out[-3:]]
        row = held_out[-1]
        updates = row["step"] - self.warmup_steps
        if self.without_context is None:
            begins = updates <= 0
        else:
            begins = _loss(row) > self.without_context - _USED and updates < _PATIENT_UPDATES
        if begins or len(warnings) < 3 or not all(warnings):
            return None
        return Verdict(self.warned, f"{self._figures(row)}; {warnings[-1]}")

    def _beside_band(self, held_out: list) -> Verdict:
        """Healthy, or at two evaluations worse than the band; unknown without one."""
        row, stage = held_out[-1], self.stages[self._number(held_out[-1]["step"])]
        usual, figures = self.bounds(row["step"]), self._figures(row)
        if usual is None or ACCURACY not in row:
            why = stage.why or "its band does not reach here"
            return Verdict(UNKNOWN, f"{figures}; {why}")
        (low, high), (least, most) = usual
        band = (
            f"band {low:.2f} to {high:.2f}, {max(least, 0):.1%} to {most:.1%}, "
            f"of {stage.band.source}"
        )
        if self._lasts(held_out, self._is_worse):
            return Verdict(
                ABOVE,
                f"{figures}; {band}. Usual causes: a learning rate, batches or a warm-up other "
                "than the band's, or text that is repeated often, which shows as a training loss "
                "far below the held-out one",
            )
        return Verdict(HEALTHY, f"{figures}; {band}")

    def _lasts(self, held_out: list, holds: Callable[[Mapping[str, Any]], bool]) -> bool:
        """Whether something holds at the last two evaluations, or at the only one of a phase."""
        step = held_out[-1]["step"]
        no_more = step == self.stages[self._number(step)].last_step
        return (len(held_out) > 1 or no_more) and all(map(holds, held_out[-2:]))

    def _is_worse(self, row: Mapping[str, Any]) -> bool:
        usual = self.bounds(row["step"])
        return usual is not None and (
            _loss(row) > usual.loss[1] or row.get(ACCURACY, math.inf) < usual.accuracy[0]
        )

    def _figures(self, row: Mapping[str, Any]) -> str:
        """The loss, that without context, the accuracy and the tokens of an evaluation."""
        name = "masked-LM loss" if LOSS in row else "loss"
        known = self.without_context is not None
        without = f" ({self.without_context:.2f} without context)" if known else ""
        accuracy = f", accuracy {row[ACCURACY]:.1%}" if ACCURACY in row else ""
        tokens = self.tokens(row["step"]) / 1e6
        return f"held-out {name} {_loss(row):.2f}{without}{accuracy}, after {tokens:,.1f} M tokens"


def _loss(row: Mapping[str, Any]) -> float:
    return row.get(LOSS, row["loss"])


def _rises(held_out: list, lines: list) -> bool:
    """Whether the mean training loss between the last two evaluations is far above the best."""
    ends = [row["step"] for row in held_out]
    means = []
    for first, last in zip([0, *ends], ends, strict=False):
        losses = [_loss(row) for row in lines if first < row["step"] <= last]
        means += [sum(losses) / len(losses)] if losses else []
    return len(means) < 2 or means[-1] > min(means) + _RISE
