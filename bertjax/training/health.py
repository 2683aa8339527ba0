"""Is a run of pre-training healthy? Its lines of metrics say so."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

TRAIN, HELDOUT = "train", "heldout"  # the two kinds of lines

# The names of a health; one more is the objective's `warned`.
HEALTHY, PLATEAU, DIVERGING, UNKNOWN = "healthy", "plateau", "diverging", "unknown"

_NEAR = 0.15  # nats: a model this near to the unigram baseline does not use the context
_RISE = 0.5  # nats: more than noise or a high rate's first steps raise the loss for two evaluations
_USED = 1.5  # nats: a model this far below the unigram baseline has learned to use the context
# A run may stay on the plateau for both of these after the warm-up (the paper's: 10,000 updates).
_PATIENT_UPDATES, _PATIENT_TOKENS = 10_000, 50_000_000


class HealthStatus(NamedTuple):
    """The health of a run: one of the names above; and a line for the user, without the name."""

    name: str
    says: str

    @property
    def is_bad(self) -> bool:
        """Whether the user should change something."""
        return self.name not in (HEALTHY, UNKNOWN)

    def __str__(self) -> str:
        return f"{self.name}: {self.says}"


class Judged(Protocol):
    """What the health needs of an objective; see `bertjax.objectives.objective`."""

    @property
    def main_metric(self) -> str: ...
    @property
    def accuracy(self) -> str: ...
    @property
    def advice(self) -> str: ...
    @property
    def warned(self) -> str: ...
    def warning(self, metrics: Mapping[str, float]) -> str: ...


class PhaseSteps(NamedTuple):
    """The steps of one phase up to `last_step`; `tokens` of an update include padding."""

    last_step: int
    tokens: int


def updates_in(ends: Sequence[int], step: int) -> list[int]:
    """How many of the updates 1 to `step` are in each phase; `ends` are the phases' last steps."""
    done = [min(step, end) for end in ends]
    return [end - begin for begin, end in zip([0, *done], done, strict=False)]


@dataclasses.dataclass(frozen=True)
class HealthRules:
    """The rules for one run.

    Attributes:
      objective: its main metric is the metric that is judged.
      stages: one for each phase, in order.
      unigram_baseline: the main metric (nats) of the best guess without context, if it is known.
      languages: the same for each language of the text, if it has several.
    """

    objective: Judged
    stages: tuple[PhaseSteps, ...]
    warmup_steps: int
    unigram_baseline: float | None
    languages: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def status(self, rows: Sequence[Mapping[str, Any]]) -> HealthStatus:
        """The health after the last of some lines of metrics.jsonl, which are in order."""
        rows = [row for row in rows if self.objective.main_metric in row]
        held_out = [row for row in rows if row["split"] == HELDOUT]
        if not held_out:
            return HealthStatus(UNKNOWN, "no evaluation yet")
        return (
            self._diverging(self._of_last_stage(rows))
            or self._plateau(held_out[-2:])
            or self._warned(held_out[-3:])
            or self._compared_with_baseline(held_out[-1])
        )

    def diverging_above(self, rows: Sequence[Mapping[str, Any]]) -> tuple[int, float] | None:
        """The step of the last phase's best evaluation, and the border (nats) of later ones.

        Main metrics above it mean that the run diverges. None: no evaluation has a finite one yet.
        """
        rows = [
            row for row in rows if self.objective.main_metric in row and row["split"] == HELDOUT
        ]
        finite = [row for row in self._of_last_stage(rows) if math.isfinite(self._loss(row))]
        best = min(finite, key=self._loss, default=None)
        return None if best is None else (best["step"], self._loss(best) + _RISE)

    def _of_last_stage(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        last = [self._number(row["step"]) for row in rows if row["split"] == HELDOUT][-1:]
        return [row for row in rows if self._number(row["step"]) in last]

    def _number(self, step: int) -> int:
        ends = [stage.last_step for stage in self.stages]
        return min(sum(end < step for end in ends), len(ends) - 1)

    def tokens(self, step: int) -> int:
        """The tokens seen after an update, padding included."""
        updates = updates_in([stage.last_step for stage in self.stages], step)
        return sum(n * stage.tokens for n, stage in zip(updates, self.stages, strict=True))

    def _diverging(self, rows: list) -> HealthStatus | None:
        """Two evaluations far above the phase's best, where the training loss has risen, too."""
        held_out = [row for row in rows if row["split"] == HELDOUT]
        losses = list(map(self._loss, held_out))
        if all(map(math.isfinite, losses)):
            best, last = min(losses[:-2], default=math.inf), losses[-2:]
            if min(last) < best + _RISE or not self._rises(rows):
                return None
            figures = f"the best before was {best:.2f}"
        else:
            figures = "it must be finite"
        return HealthStatus(
            DIVERGING,
            f"{self._figures(held_out[-1])}; {figures}. Usual causes: a learning rate that is too "
            "high, a warm-up that is too short, or damaged text. Lower the rate or lengthen the "
            "warm-up, and begin anew, or from a checkpoint before the rise",
        )

    def _rises(self, rows: list) -> bool:
        """Whether the mean training loss between the last two evaluations is far above the best."""
        means, losses = [], []
        for row in rows:
            if row["split"] == TRAIN:
                losses.append(self._loss(row))
            elif losses:
                means.append(sum(losses) / len(losses))
                losses = []
        return len(means) < 2 or means[-1] > min(means) + _RISE

    def _plateau(self, held_out: list) -> HealthStatus | None:
        """The run still does not use the context, long after the warm-up."""
        step, warmup = held_out[-1]["step"], self.warmup_steps
        updates, tokens = step - warmup, self.tokens(step) - self.tokens(warmup)
        if updates < _PATIENT_UPDATES or tokens < _PATIENT_TOKENS:
            return None
        if self.unigram_baseline is None or any(map(self._uses_context, held_out)):
            return None
        return HealthStatus(
            PLATEAU,
            f"{self._figures(held_out[-1])}: no better than a guess by the frequencies of the "
            f"words, {updates:,} updates after the warm-up. {self.objective.advice}",
        )

    def _warned(self, held_out: list) -> HealthStatus | None:
        """The objective warns at three evaluations, and the run is no longer at its beginning."""
        warnings = list(map(self.objective.warning, held_out))
        updates = held_out[-1]["step"] - self.warmup_steps
        if self.unigram_baseline is None:
            begins = updates <= 0
        else:
            loss = self._loss(held_out[-1])
            begins = loss > self.unigram_baseline - _USED and updates < _PATIENT_UPDATES
        if begins or len(warnings) < 3 or not all(warnings):
            return None
        return HealthStatus(self.objective.warned, f"{self._figures(held_out[-1])}; {warnings[-1]}")

    def _compared_with_baseline(self, row: Mapping[str, Any]) -> HealthStatus:
        """Healthy below the unigram baseline; unknown above it, and without one."""
        if self.unigram_baseline is None:
            return HealthStatus(UNKNOWN, self._figures(row))
        if self._uses_context(row):
            return HealthStatus(HEALTHY, self._figures(row))
        return HealthStatus(UNKNOWN, f"{self._figures(row)}; it does not use the context yet")

    @property
    def healthy_below(self) -> float | None:
        """The main metric (nats) below which a run uses the context; None: it is not known."""
        return None if self.unigram_baseline is None else self.unigram_baseline - _NEAR

    def _uses_context(self, row: Mapping[str, Any]) -> bool:
        below = self.healthy_below
        return below is not None and self._loss(row) < below

    def _loss(self, row: Mapping[str, Any]) -> float:
        return row[self.objective.main_metric]

    def _figures(self, row: Mapping[str, Any]) -> str:
        known = self.unigram_baseline is not None
        baseline = f" (unigram baseline {self.unigram_baseline:.2f})" if known else ""
        name = self.objective.accuracy
        accuracy = f", {name} {row[name]:.1%}" if name in row else ""
        tokens = self.tokens(row["step"]) / 1e6
        return (
            f"held-out {self.objective.main_metric} {self._loss(row):.2f}{baseline}{accuracy}, "
            f"after {tokens:,.1f} M tokens{self._by_language(row)}"
        )

    def _by_language(self, row: Mapping[str, Any]) -> str:
        """The main metric of each language next to its baseline; "" if there is none."""
        texts = []
        for language, baseline in self.languages.items():
            loss = row.get(in_language(language, self.objective.main_metric))
            if loss is not None:
                unused = "" if loss < baseline - _NEAR else ", the context is not used"
                texts.append(f"{language} {loss:.2f} (baseline {baseline:.2f}{unused})")
        return f"; by language: {', '.join(texts)}" if texts else ""


def in_language(language: str, metric: str) -> str:
    """The name of a metric in one language, such as "mlm_loss_sw"."""
    return f"{metric}_{language}"
