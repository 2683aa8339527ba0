"""Curves and levels, which pages show too; and pictures of matplotlib, without a screen."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bertjax.base.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Curve:
    """Values over ascending steps, or over what the chart has in their place; nan if not finite."""

    name: str
    steps: np.ndarray
    values: np.ndarray
    deviations: np.ndarray | None = None  # bars, which only a PNG has

    @classmethod
    def of(cls, name: str, points: Sequence[tuple[float, float]]) -> Self:
        """The curve of pairs of a step and a value."""
        steps, values = np.array(points, np.float64).reshape(-1, 2).T
        order = np.argsort(steps, kind="stable")
        return cls(name, steps[order], np.where(np.isfinite(values), values, np.nan)[order])


class Level(NamedTuple):
    """A horizontal line at a value, from a step on."""

    name: str
    value: float
    begin: float = 0.0


@contextlib.contextmanager
def png(path: str | os.PathLike, **options: Any) -> Iterator["Figure"]:
    """Yields an empty `Figure(**options)` of matplotlib; writes it if the block succeeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", **options)
    FigureCanvasAgg(figure)
    yield figure
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)


def draw(
    path: str | os.PathLike, curves: Sequence[Curve], levels: Sequence[Level] = (), **axes: Any
) -> None:
    """Writes a PNG of curves and dashed levels; `axes` are arguments of matplotlib's `Axes.set`."""
    with png(path, figsize=(8, 5)) as figure:
        plot = figure.subplots()
        for curve in curves:
            marker = "." if len(curve.steps) <= 50 else None  # more would hide the line
            line = curve.steps, curve.values, curve.deviations
            plot.errorbar(*line, capsize=3, marker=marker, label=curve.name)
        last = max((curve.steps.max(initial=0.0) for curve in curves), default=1.0)
        for level in levels:  # an errorbar too, so that the legend keeps their order
            plot.errorbar([level.begin, last], [level.value] * 2, ls="--", lw=1, label=level.name)
        plot.set(**axes)
        plot.grid(alpha=0.3)
        if curves or levels:
            plot.legend()
