"""The charts of lines of metrics: of one run with its health, or of several on the same axes."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.figures import Curve, Level
from bertjax.lab.pages.chart import Band, Chart, Mark
from bertjax.runs.health import RunHealth
from bertjax.training.health import HELDOUT, TRAIN, in_language
from bertjax.training.metrics_log import METRICS_FILE

Rows = Sequence[Mapping[str, Any]]
Place = Callable[[float], float]  # of a step on the horizontal axis
STEPS, MINUTES = "steps", "minutes"

# These keys of a line are no curves: they are places, counters, or say what another curve says.
_NO_CURVES = ("step", "tokens", "flops")
_NO_ENDS = ("_stderr", "_perplexity")
_FIRST, _RATES = ("loss",), ("learning_rate", "tokens_per_second")
_WORDS = {TRAIN: "training", HELDOUT: "held-out"}
_TITLES = {
    "grad_norm": "grad_norm: the norm of the gradient before it is clipped",
    "host_wait": "host_wait: the share of the time in which the device waits for a batch",
    "mfu": "mfu: the share of the device's peak",
}


class Lines(NamedTuple):
    """The lines of a metrics.jsonl, and the name of the run or trial that wrote them."""

    name: str
    rows: Rows


def charts(
    lines: Sequence[Lines], health: RunHealth | None = None, over: str = STEPS
) -> list[Chart]:
    """A chart for each metric; of several runs, one for each metric and split.

    A chart that looks like an earlier one is left out, as that of a loss with a single term. The
    main metric of `health`, that of a single run, comes first.

    Args:
      over: "steps", "minutes" or "tokens". The minutes are those of the updates, without
        compilation, evaluations and checkpoints. InputError: the lines do not say their tokens.
    """
    found: list[Chart] = []
    for chart in _all_charts(lines, health, over):
        if not any(chart.is_like(other) for other in found):
            found.append(dataclasses.replace(chart, over=over))
    return found


def _axis(lines: Lines, over: str) -> Place:
    if over == STEPS:
        return float
    steps, places, before = [0.0], [0.0], 0.0
    for row in lines.rows:
        if row["split"] == TRAIN and "tokens" in row:
            pace = row["tokens_per_second"] * 60 if over == MINUTES else 1.0
            steps.append(row["step"])
            places.append(places[-1] + (row["tokens"] - before) / pace)
            before = row["tokens"]
    if lines.rows and len(steps) == 1:
        raise InputError(
            f"--over={over}: no line of {lines.name or METRICS_FILE} says its tokens: leave it out"
        )
    return lambda step: float(np.interp(step, steps, places))


def _all_charts(lines: Sequence[Lines], health: RunHealth | None, over: str) -> Iterator[Chart]:
    on = [(each, _axis(each, over)) for each in lines]
    marks = _phases(health, on[0][1]) if health else ()
    languages = list(health.health.languages) if health and len(lines) == 1 else []
    first = (health.health.objective.main_metric, *_FIRST) if health else _FIRST
    names = _names(lines, first)
    by_language = {in_language(language, name) for language in languages for name in names}
    for name in (name for name in names if name not in by_language):
        title, found = _TITLES.get(name, name), list(_curves(on, name))
        if len(lines) == 1:
            judged = health if name == first[0] else None
            background = (list(_levels(judged, *on[0])), list(_bands(judged))) if judged else ()
            yield from _chart(title, [curve for _, curve in found], marks, *background)
        else:
            for split in dict.fromkeys(split for split, _ in found):
                of_split = [curve for each, curve in found if each == split]
                yield from _chart(f"{title}, {_WORDS.get(split, split)}", of_split)
        if health and languages and name == first[0]:
            yield from _by_language(*on[0], health, marks)


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


def _curves(on: Sequence[tuple[Lines, Place]], name: str) -> Iterator[tuple[str, Curve]]:
    """Yields each split of each run that has the metric, and its curve."""
    for run, place in on:
        points: dict[str, list[tuple[float, float]]] = {}
        for row in run.rows:
            if isinstance(row.get(name), int | float):
                points.setdefault(row["split"], []).append((place(row["step"]), row[name]))
        for split, found in points.items():
            label = run.name if len(on) > 1 else _WORDS.get(split, split)
            yield split, Curve.of(label, found)


def _chart(
    title: str,
    curves: Sequence[Curve],
    marks: Sequence[Mark] = (),
    levels: Sequence[Level] = (),
    bands: Sequence[Band] = (),
) -> Iterator[Chart]:
    """Yields the chart, unless each curve is a single point, which tables show."""
    if any(len(curve.steps) > 1 for curve in curves):
        yield Chart(title, curves, levels, bands, marks)


def _levels(health: RunHealth, lines: Lines, place: Place) -> Iterator[Level]:
    """Yields the baseline of the main metric; and, from the best one on, that of divergence."""
    if (baseline := health.health.unigram_baseline) is not None:
        yield Level("unigram baseline", baseline)
    if border := health.health.diverging_above(lines.rows):
        step, above = border
        yield Level("diverging above", above, place(step))


def _bands(health: RunHealth) -> Iterator[Band]:
    if (below := health.health.healthy_below) is not None:
        yield Band("healthy: it uses the context", -math.inf, below)


def _by_language(
    lines: Lines, place: Place, health: RunHealth, marks: Sequence[Mark]
) -> Iterator[Chart]:
    """Yields the held-out main metric of each language, with its baseline."""
    main_metric = health.health.objective.main_metric
    curves, levels = [], []
    for language, baseline in health.health.languages.items():
        name = in_language(language, main_metric)
        points = [(place(row["step"]), row[name]) for row in lines.rows if name in row]
        if points:
            curves.append(Curve.of(language, points))
            levels.append(Level(f"baseline of {language}", baseline))
    yield from _chart(f"{main_metric} by language, held-out", curves, marks, levels)


def _phases(health: RunHealth, place: Place) -> list[Mark]:
    return [
        Mark(f"{name}: {phase.batch_size} x {phase.length}", place(steps.start))
        for name, phase, steps in health.recipe.steps()
    ]
