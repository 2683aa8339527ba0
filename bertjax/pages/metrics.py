"""The charts of lines of metrics: of one run with its health, or of several on the same axes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bertjax.pages.chart import Band, Chart, Curve, Level, Mark
from bertjax.runs.health import RunHealth
from bertjax.training.verdict import HELDOUT, TRAIN, in_language

Rows = Sequence[Mapping[str, Any]]

# These keys of a line are no curves: they are places, counters, or say what another curve says.
_NO_CURVES = ("step", "tokens", "flops")
_NO_ENDS = ("_stderr", "_perplexity")
_FIRST, _RATES = ("loss",), ("learning_rate", "tokens_per_second")
_WORDS = {TRAIN: "training", HELDOUT: "held-out"}


class Lines(NamedTuple):
    """The lines of a metrics.jsonl, and the name of the run or trial that wrote them."""

    name: str
    rows: Rows


def charts(lines: Sequence[Lines], health: RunHealth | None = None) -> list[Chart]:
    """A chart for each metric; of several runs, one for each metric and split.

    A chart that looks like an earlier one is left out, as that of a loss with a single part.

    Args:
      health: that of the one run that is given; its headline comes first.
    """
    found: list[Chart] = []
    for chart in _all_charts(lines, health):
        if not any(chart.is_like(other) for other in found):
            found.append(chart)
    return found


def _all_charts(lines: Sequence[Lines], health: RunHealth | None) -> Iterator[Chart]:
    marks = _phases(health) if health else ()
    languages = list(health.health.languages) if health and len(lines) == 1 else []
    first = (health.health.objective.headline, *_FIRST) if health else _FIRST
    names = _names(lines, first)
    apart = {in_language(language, name) for language in languages for name in names}
    for name in (name for name in names if name not in apart):
        found = list(_curves(lines, name))
        if len(lines) == 1:
            judged = health if name == first[0] else None
            rows = lines[0].rows
            behind = (list(_levels(judged, rows)), list(_bands(judged))) if judged else ()
            yield from _chart(name, [curve for _, curve in found], marks, *behind)
        else:
            for split in dict.fromkeys(split for split, _ in found):
                title = f"{name}, {_WORDS.get(split, split)}"
                yield from _chart(title, [curve for each, curve in found if each == split], marks)
        if health and languages and name == first[0]:
            yield from _by_language(lines[0].rows, health, marks)


def _names(lines: Sequence[Lines], first: Sequence[str]) -> list[str]:
    """The metrics that are curves: `first`, the rates, and the others in alphabetical order."""
    found = {
        key
        for each in lines
        for row in each.rows
        for key, value in row.items()
        if isinstance(value, int | float) and not key.endswith(_NO_ENDS)
    }
    before = [name for name in dict.fromkeys([*first, *_RATES]) if name in found]
    return [*before, *sorted(found - {*before, *_NO_CURVES})]


def _curves(lines: Sequence[Lines], name: str) -> Iterator[tuple[str, Curve]]:
    """Yields each split of each run that has the metric, and its curve."""
    for each in lines:
        points: dict[str, list[tuple[float, float]]] = {}
        for row in each.rows:
            if isinstance(row.get(name), int | float):
                points.setdefault(row["split"], []).append((row["step"], row[name]))
        for split, found in points.items():
            said = each.name if len(lines) > 1 else _WORDS.get(split, split)
            yield split, Curve.of(said, found)


def _chart(
    title: str,
    curves: Sequence[Curve],
    marks: Sequence[Mark],
    levels: Sequence[Level] = (),
    bands: Sequence[Band] = (),
) -> Iterator[Chart]:
    """Yields the chart, unless each curve is a single point, which tables show."""
    if any(len(curve.steps) > 1 for curve in curves):
        yield Chart(title, curves, levels, bands, marks)


def _levels(health: RunHealth, rows: Rows) -> Iterator[Level]:
    """Yields the headline of a guess without context, and that of a run that diverges now."""
    if (baseline := health.health.unigram_baseline) is not None:
        yield Level("unigram baseline", baseline)
    if (above := health.health.diverging_above(rows)) is not None:
        begins = [steps.start for *_, steps in health.recipe.steps()]
        last = rows[-1]["step"]
        yield Level("diverging above", above, max(step for step in begins if step < last))


def _bands(health: RunHealth) -> Iterator[Band]:
    if (below := health.health.healthy_below) is not None:
        yield Band("healthy: it uses the context", -math.inf, below)


def _by_language(rows: Rows, health: RunHealth, marks: Sequence[Mark]) -> Iterator[Chart]:
    """Yields the held-out headline of each language, beside its baseline."""
    headline = health.health.objective.headline
    curves, levels = [], []
    for language, baseline in health.health.languages.items():
        name = in_language(language, headline)
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points:
            curves.append(Curve.of(language, points))
            levels.append(Level(f"baseline of {language}", baseline))
    yield from _chart(f"{headline} by language, held-out", curves, marks, levels)


def _phases(health: RunHealth) -> list[Mark]:
    """Where each phase begins."""
    return [
        Mark(f"{name}: {phase.batch_size} x {phase.length}", steps.start)
        for name, phase, steps in health.recipe.steps()
    ]
