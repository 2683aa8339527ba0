"""Draws the report as a picture: the time of each part of a step, for each phase."""

import os

from bertjax.base import figures
from bertjax.compile_report.parts import BACKWARD, FORWARD, PARTS
from bertjax.compile_report.report import Report


def draw(reports: list[Report], title: str, path: str | os.PathLike) -> None:
    """Draws a PNG: for each phase a bar of parts by each yardstick, the backward pass hatched."""
    from matplotlib import colormaps

    bars = [
        (f"length {report.step.length}\n{report.step.batch_size} sequences\n{name}", report, times)
        for report in reports
        for name, times in report.yardsticks.items()
    ]
    with figures.png(path, figsize=(10, 1.8 + 0.8 * len(bars))) as figure:
        plot = figure.subplots()
        labelled = set()
        for place, (_, report, times) in enumerate(bars):
            start = 0.0
            for number, part in enumerate(PARTS):
                for way, hatch in ((FORWARD, None), (BACKWARD, "///")):
                    width = 1e3 * times.parts.get((part, way), 0.0)
                    if not width:
                        continue
                    label = None if part in labelled else part
                    labelled.add(part)
                    color = colormaps["tab10"](number)
                    plot.barh(
                        place,
                        width,
                        left=start,
                        label=label,
                        color=color,
                        hatch=hatch,
                        edgecolor="white",
                    )
                    start += width
            text = f"  {start:.1f} ms, MFU {report.mfu(times):.1%}"
            plot.text(start, place, text, va="center", fontsize=9)
        plot.set_yticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8)
        plot.invert_yaxis()
        plot.set_xlim(right=1.25 * max(1e3 * times.seconds for _, _, times in bars))
        plot.set(xlabel="ms of a step (hatched: backward and update)", title=title)
        figure.legend(loc="outside lower center", ncols=5, fontsize=8)
