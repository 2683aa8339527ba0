"""Charts: what is drawn, what is in their data, and how long curves are thinned."""

import math

import numpy as np
import pytest

from bertjax.base.figures import Curve, Level
from bertjax.lab.pages.chart import Band, Chart, Mark, thinned
from bertjax.lab.pages.page import Section, page
from tests.helpers.page_data import Page


def drawn(*charts: Chart) -> Page:
    return Page(page("Charts", [Section("All", [], charts)]))


def test_the_path_is_the_data_s():
    """The places of the path, taken back to steps and values, are the points."""
    points = [(20, 9.0), (50, -2.5), (70, 4.25), (110, 0.0)]
    shown = drawn(Chart("loss", [Curve.of("training", points)]))
    assert shown.curve(0, "training") == ([20, 50, 70, 110], [9, -2.5, 4.25, 0])
    (path,) = shown.paths()
    left, right, low, high = shown.data["charts"][0]["view"]
    x0, x1, y0, y1 = shown.data["charts"][0]["box"]
    back = [
        (left + (x - x0) / (x1 - x0) * (right - left), low + (y - y0) / (y1 - y0) * (high - low))
        for x, y in path
    ]
    np.testing.assert_allclose(back, points, atol=0.05)
    assert "training 0 110 -2.5 50 9 20" in shown.text  # last, lowest, highest
    assert shown.open == []


def test_steps_out_of_order_and_values_that_are_not_finite():
    curve = Curve.of("a", [(3, 1.0), (1, math.inf), (2, math.nan), (4, 2.0), (5, -math.inf)])
    shown = drawn(Chart("loss", [curve, Curve.of("b", [(2, math.nan)])]))
    assert shown.curve(0, "a") == ([1, 2, 3, 4, 5], [None, None, 1, 2, None])
    assert [len(path) for path in shown.paths()] == [2]
    assert "b not finite" in shown.text


def test_gaps_and_points_between_them():
    """No line crosses a gap, and a point that no line reaches is a dot that can be seen."""
    values = [7.0, 5.0, math.nan, 4.0, math.nan, math.inf, 2.0, 3.0, 1.0]
    text = page("", [Section("", [], [Chart("loss", [Curve.of("a", list(enumerate(values)))])])])
    shown = Page(text)
    x0, x1, y0, y1 = shown.data["charts"][0]["box"]
    left, right, low, high = shown.data["charts"][0]["view"]
    at = [
        f"{x0 + (n - left) / (right - left) * (x1 - x0):.1f}"
        f" {y0 - (values[n] - low) / (high - low) * (y0 - y1):.1f}"
        for n in (0, 1, 3, 6, 7, 8)
    ]
    drawn = {a["class"]: a["d"] for _, a in shown.elements if "c0" in (a.get("class") or "")}
    assert drawn.pop("dots c0") == f"M{at[2]}h.01"
    lines = [a["d"] for _, a in shown.elements if a.get("class") == "curve c0"]
    assert lines == [f"M{at[0]}L{at[1]}M{at[3]}L{at[4]}L{at[5]}", "M0 6H26"]
    assert ".dots { stroke-width: 7; }" in text


def test_a_name_has_one_color_in_a_page():
    """Also where a chart lacks the curves before it; the legend has the same."""

    def chart(*names):
        return Chart("loss", [Curve.of(name, [(0, 1.0), (1, 2.0)]) for name in names])

    names = [f"run {n}" for n in range(10)]
    shown = drawn(chart(*names), chart("run 9", "run 2"), chart("other", "run 2"))
    styles = [
        (a["class"], a.get("stroke-dasharray"), a["d"] == "M0 6H26")
        for name, a in shown.elements
        if name == "path" and a["class"].startswith("curve")
    ]
    style = {name: (f"curve c{n % 8}", "7 3" if n > 7 else None) for n, name in enumerate(names)}
    style["other"] = ("curve c2", "7 3")
    order = [names, ["run 9", "run 2"], ["other", "run 2"]]
    assert styles == [(*style[n], key) for each in order for key in (False, True) for n in each]


def test_a_long_curve_keeps_its_ends_and_extremes():
    random = np.random.default_rng(0)
    values = random.normal(size=54_321)
    values[777], values[40_001], values[40_002] = 99.0, -98.0, math.nan
    curve = Curve.of("a", list(enumerate(values)))
    thin = thinned(curve, 500)
    assert len(thin.steps) <= 503
    assert {0, 777, 40_001, 40_002, 54_320} <= set(thin.steps.tolist())
    np.testing.assert_array_equal(thin.values, values[thin.steps.astype(int)])
    assert thinned(curve, 54_321) is curve
    # No stretch of the curve is left out, and each keeps its own extremes.
    assert np.diff(thin.steps).max() < 3 * 54_321 / 250
    for begin in range(0, 54_000, 1_000):
        slice_ = values[begin : begin + 1_000]
        near = thin.values[(thin.steps >= begin - 250) & (thin.steps < begin + 1_250)]
        assert np.nanmax(near) >= np.nanmax(slice_) and np.nanmin(near) <= np.nanmin(slice_)


def test_a_page_of_many_curves_is_small():
    long = [Curve.of(f"run {n}", [(i, math.sin(i * n)) for i in range(5_000)]) for n in range(60)]
    text = page("Many", [Section("All", [], [Chart("loss", long)])])
    assert len(text.encode()) < 2_000_000
    assert len(Page(text).paths()) == 60


def test_levels_bands_and_marks():
    chart = Chart(
        "loss",
        [Curve.of("a", [(0, 6.0), (100, 4.0)])],
        [Level("baseline", 5.0), Level("late", 4.5, begin=50), Level("end", 4.7, begin=100)],
        [Band("good", -math.inf, 4.85), Band("far off", 90.0, math.inf)],
        [Mark("one", 0), Mark("two", 60)],
    )
    shown = drawn(chart)
    (band,) = [a for name, a in shown.elements if name == "rect"]
    lines = {
        kind: [a["d"] for name, a in shown.elements if a.get("class") == kind]
        for kind in ("level", "mark")
    }
    x0, x1, y0, y1 = shown.data["charts"][0]["box"]
    _, _, low, high = shown.data["charts"][0]["view"]
    y = {value: y0 - (value - low) / (high - low) * (y0 - y1) for value in (5.0, 4.85)}
    assert float(band["y"]) == pytest.approx(y[4.85], abs=0.06)
    assert float(band["y"]) + float(band["height"]) == pytest.approx(y0, abs=0.06)
    assert lines["level"][0] == f"M{x0:.1f} {y[5.0]:.1f}H{x1}"
    assert lines["level"][1].startswith(f"M{(x0 + x1) / 2:.1f} ")
    assert lines["level"][2].startswith(f"M{x1 - 40} ")  # it can be seen
    assert lines["mark"][1].startswith(f"M{x0 + 0.6 * (x1 - x0):.1f} ")
    assert "baseline 5.00" in shown.text and "two" in shown.text


@pytest.mark.parametrize("values", [[5.0, 5.0], [0.0, 0.0], [1e-9, 3e-9], [1e30, -1e30]])
def test_odd_ranges(values):
    shown = drawn(Chart("loss", [Curve.of("a", list(enumerate(values, 1)))]))
    _, x1, y0, y1 = shown.data["charts"][0]["box"]
    (path,) = shown.paths()
    assert all(y1 <= y <= y0 for _, y in path) and path[-1][0] == x1


def test_a_single_point_is_a_dot():
    shown = drawn(Chart("loss", [Curve.of("a", [(7, 5.0)])]))
    (path,) = [a["d"] for _, a in shown.elements if a.get("class") == "dots c0"]
    x0, x1, y0, y1 = shown.data["charts"][0]["box"]
    assert path == f"M{x1:.1f} {(y0 + y1) / 2:.1f}h.01" and shown.paths() == []


def test_charts_that_look_alike():
    def chart(*values):
        return Chart("loss", [Curve.of("a", list(enumerate(values)))])

    one = chart(5.0, 4.0, math.nan)
    assert one.is_like(chart(5.0001, 4.0, math.nan))
    assert not one.is_like(chart(5.0, 4.1, math.nan))
    assert not one.is_like(chart(5.0, 4.0))
    assert not one.is_like(Chart("loss", [*one.curves, *one.curves]))
