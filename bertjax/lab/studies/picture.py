"""The table of a study as a picture: points for each row, or curves over the columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base import figures
from bertjax.base.figures import Curve


def draw(table: Mapping[str, Any], path: Path) -> None:
    """Writes a PNG of a table of `bertjax.lab.studies.table.content`."""
    if all(column["x"] is not None for column in table["columns"]):
        _draw_curves(table, path)
    else:
        _draw_points(table, path)


def _draw_points(table: Mapping[str, Any], path: Path) -> None:
    """A panel for each column, in which every row has a line: seeds, mean, published figure."""
    rows, columns = table["rows"], table["columns"]
    size = (3 + 2.2 * len(columns), 1.2 + 0.35 * len(rows))
    with figures.png(path, figsize=size) as figure:
        figure.suptitle(table["title"])
        panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for panel, column in zip(panels, columns, strict=True):
            for place, row in enumerate(rows):
                cell = row["cells"][column["name"]]
                if cell["mean"] is not None:
                    values = cell["values"]
                    panel.plot(values, [place] * len(values), "o", color="tab:blue", alpha=0.4)
                    panel.plot(cell["mean"], place, "|", color="black", markersize=14)
                if cell["published"] is not None:
                    panel.plot(cell["published"], place, "D", color="tab:orange", fillstyle="none")
            panel.set_title(column["name"], fontsize="medium")
            panel.grid(axis="x", alpha=0.3)
        panels[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
        panels[0].invert_yaxis()


def _draw_curves(table: Mapping[str, Any], path: Path) -> None:
    """A curve for each row, with the deviation over its seeds."""
    curves = []
    for row in table["rows"]:
        cells = [(column["x"], row["cells"][column["name"]]) for column in table["columns"]]
        points = [(x, c["mean"], c["deviation"] or 0.0) for x, c in cells if c["mean"] is not None]
        if points:
            curves.append(Curve(row["name"], *np.array(sorted(points)).T))
    figures.draw(path, curves, title=table["title"], xlabel=table["axis"])
