"""Draws the report as a picture: the time of each part of a step, for each phase."""

import os

from bertjax.base import figures
from bertjax.compile_report.parts import BACKWARD, FORWARD, PARTS
from bertjax.compile_report.report import Report


def draw(reports: list[Report], title: str, path: str | os.PathLike) -> None:
    """Draws a PNG: a bar of parts for each phase, with the backward pass hatched."""
    from matplotlib import colormaps

    names = [f"length {r.step.length}\n{r.step.batch_size} sequences" for r in reversed(reports)]
    with figures.png(path, figsize=(10, 1.8 + 1.1 * len(reports))) as figure:
        plot = figure.subplots()
        labelled = set()
        for place, report in enumerate(reversed(reports)):
            start = 0.0
            for number, part in enumerate(PARTS):
                for way, hatch in ((FORWARD, None), (BACKWARD, "///")):
                    width = 1e3 * report.parts.get((part, way), 0.0)
                    if not width:
                        continue
                    label = None if part in labelled else part
                    labelled.add(part)
                    style = dict(color=colormaps["tab10"](number), hatch=hatch, edgecolor="white")
                    plot.barh(place, width, left=start, label=label, **style)
                    start += width
            text = f"  {start:.1f} ms, MFU {report.mfu:.1%}"
            plot.text(start, place, text, va="center", fontsize=9)
        plot.set_yticks(range(len(reports)), names)
        plot.set_xlim(right=1.25 * max(1e3 * report.seconds for report in reports))
        plot.set(xlabel="estimated ms of a step (hatched: backward and update)", title=title)
        figure.legend(loc="outside lower center", ncols=5, fontsize=8)
