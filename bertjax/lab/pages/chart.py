"""Curves as SVG, with a table of their figures and the data of what a pointer shows."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.base.figures import Curve, Level
from bertjax.lab.pages.html import Html, element, table

_WIDTH, _HEIGHT = 760, 300  # units of the picture
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 22, 30  # its margins
_ROOM = 130  # of a mark's name
_SHORTEST = 40  # of a level that begins at the end
_SAME = 1e-3  # relative
_COLORS = 8  # of page.css
_DASHES = (None, "7 3", "2 3")  # when the colors begin again


class Band(NamedTuple):
    """The values from `low` to `high`, which may be infinite; they are good ones."""

    name: str
    low: float
    high: float


class Mark(NamedTuple):
    """A vertical line at a step."""

    name: str
    step: float


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves on one pair of axes, and what is drawn under them; `over` is a word in the plural."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    over: str = "steps"

    def is_like(self, other: "Chart") -> bool:
        """Whether the curves have the same steps, and values that nobody can tell apart."""
        return len(self.curves) == len(other.curves) and all(
            np.array_equal(curve.steps, other_curve.steps)
            and np.allclose(curve.values, other_curve.values, rtol=_SAME, atol=0, equal_nan=True)
            for curve, other_curve in zip(self.curves, other.curves, strict=True)
        )

    def html(
        self, number: int, most: int, places: Mapping[str, int]
    ) -> tuple[Html, dict[str, Any]]:
        """The chart, and the data that page.js shows at the pointer.

        Args:
          number: of the chart in its page.
          most: the most points of a curve.
          places: the number of each curve's name in the page; it chooses the color.

        Returns:
          The figure; and "view" (the steps and values at the borders of the picture), "box" (these
          borders), "over" (the unit of the horizontal axis), and for each curve its "name", "steps"
          and "values" (null where not finite).
        """
        thin = [thinned(curve, most) for curve in self.curves]
        view = self._view()
        drawn = element(
            "svg",
            element("title", f"{self.title} over {self.over}"),
            *self._background(view),
            *_axes(view),
            *(each for curve in thin for each in _drawn(curve, places[curve.name], view)),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            data_chart=number,
        )
        figure = element(
            "figure",
            element("h3", self.title),
            drawn,
            element("p", *self._legend(places), class_="legend"),
            element("p", "", class_="here", role="status"),
            self._figures(),
        )
        data = {
            "view": [_rounded(edge) for edge in view],
            "box": [_LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, _TOP],
            "over": self._unit,
            "curves": [
                {
                    "name": curve.name,
                    "steps": [_rounded(step) for step in curve.steps],
                    "values": [_rounded(value) for value in curve.values],
                }
                for curve in thin
            ],
        }
        return figure, data

    @property
    def _unit(self) -> str:
        return self.over.removesuffix("s")

    def _view(self) -> tuple[float, float, float, float]:
        """The first and last step, and the lowest and highest value, of the picture."""
        steps = np.concatenate([curve.steps for curve in self.curves])
        values = np.concatenate([curve.values for curve in self.curves])
        shown = [*values[np.isfinite(values)], *(level.value for level in self.levels)]
        low, high = min(shown, default=0.0), max(shown, default=1.0)
        room = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
        first, last = min(0.0, steps.min()), steps.max()
        return first, max(last, first + 1.0), low - room, high + room

    def _background(self, view: tuple[float, float, float, float]) -> list[Html]:
        left, right, low, high = view
        found = []
        for band in self.bands:
            _, top = _place(view, left, min(band.high, high))
            _, bottom = _place(view, left, max(band.low, low))
            if bottom > top:
                size = dict(x=_LEFT, y=top, width=_WIDTH - _LEFT - _RIGHT, height=bottom - top)
                found.append(element("rect", **size, class_="band"))
        free = 0.0  # no mark's name stands left of this
        for mark in self.marks:
            x, _ = _place(view, mark.step, low)
            found.append(element("path", d=f"M{x} {_TOP}V{_HEIGHT - _BOTTOM}", class_="mark"))
            if free <= x <= _WIDTH - _ROOM:
                found.append(element("text", mark.name, x=x + 4, y=_TOP - 8))
                free = x + _ROOM
        for level in self.levels:
            x, y = _place(view, max(level.begin, left), level.value)
            x = min(x, _WIDTH - _RIGHT - _SHORTEST)
            found.append(element("path", d=f"M{x} {y}H{_WIDTH - _RIGHT}", class_="level"))
            label = f"{level.name} {level.value:.2f}"
            found.append(element("text", label, x=_WIDTH - 16, y=y - 4, text_anchor="end"))
        return found

    def _legend(self, places: Mapping[str, int]) -> list[Html]:
        found = [
            element("span", _swatch(places[curve.name]), f" {curve.name}") for curve in self.curves
        ]
        for band in self.bands:
            swatch = element("i", class_="swatch band")
            found.append(element("span", swatch, f" {band.name}"))
        return found

    def _figures(self) -> Html:
        rows: list[list[Any]] = []
        for curve in self.curves:
            is_finite = np.isfinite(curve.values)
            if not is_finite.any():
                rows.append([curve.name, "not finite", "", "", "", "", ""])
                continue
            steps, values = curve.steps[is_finite], curve.values[is_finite]
            chosen = (len(values) - 1, int(values.argmin()), int(values.argmax()))
            cells = [cell for at in chosen for cell in (float(values[at]), _rounded(steps[at]))]
            rows.append([curve.name, *cells])
        at = f"at {self._unit}"
        names = ["", *("last", at, "lowest", at, "highest", at)]
        return table(self.title, names, rows)


def thinned(curve: Curve, most: int) -> Curve:
    """The curve with about `most` points, among them its ends and extremes.

    Of each stretch of points stay the lowest, the highest, and one that is not finite.
    """
    if len(curve.steps) <= most:
        return curve
    edges = np.linspace(0, len(curve.steps), max(most // 2, 1) + 1).astype(int)
    kept = {0, len(curve.steps) - 1}
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        piece = curve.values[begin:end]
        is_finite = np.isfinite(piece)
        if is_finite.any():
            kept |= {begin + int(np.nanargmin(piece)), begin + int(np.nanargmax(piece))}
        if not is_finite.all():
            kept.add(begin + int(np.argmin(is_finite)))
    chosen = np.array(sorted(kept))
    return dataclasses.replace(curve, steps=curve.steps[chosen], values=curve.values[chosen])


def _swatch(place: int) -> Html:
    line = element("path", d="M0 6H26", **_style("curve", place))
    return element("svg", line, viewBox="0 0 26 12", class_="swatch", aria_hidden="true")


def _style(mark: str, place: int) -> dict[str, Any]:
    dashes = _DASHES[place // _COLORS % len(_DASHES)] if mark == "curve" else None
    return dict(class_=f"{mark} c{place % _COLORS}", stroke_dasharray=dashes)


def _drawn(curve: Curve, place: int, view: tuple[float, float, float, float]) -> list[Html]:
    """The path of a curve, with gaps where a value is not finite; points between gaps are dots."""
    pieces: list[list[str]] = [[]]
    for step, value in zip(curve.steps, curve.values, strict=True):
        if math.isfinite(value):
            x, y = _place(view, step, value)
            pieces[-1].append(f"{x} {y}")
        elif pieces[-1]:
            pieces.append([])
    line = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    dots = "".join(f"M{piece[0]}h.01" for piece in pieces if len(piece) == 1)
    marks = (("curve", line), ("dots", dots))
    return [element("path", d=path, **_style(mark, place)) for mark, path in marks if path]


def _place(
    view: tuple[float, float, float, float], step: float, value: float
) -> tuple[float, float]:
    left, right, low, high = view
    x = _LEFT + (step - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
    y = _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
    return round(float(x), 1), round(float(y), 1)


def _axes(view: tuple[float, float, float, float]) -> list[Html]:
    left, right, low, high = view
    found = []
    for step in _ticks(left, right):
        x, _ = _place(view, step, low)
        anchor = "middle" if x < _WIDTH - 4 * _RIGHT else "end"
        shown = f"{_rounded(step):,}"
        found.append(element("text", shown, x=x, y=_HEIGHT - 10, text_anchor=anchor))
    for value in _ticks(low, high):
        _, y = _place(view, left, value)
        found.append(element("path", d=f"M{_LEFT} {y}H{_WIDTH - _RIGHT}", class_="grid"))
        found.append(element("text", f"{value:.6g}", x=_LEFT - 6, y=y + 4, text_anchor="end"))
    return found


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _rounded(value: float) -> float | None:
    """With 6 digits, and whole numbers without a point; None if it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.7g}")
    return int(short) if short.is_integer() else short
