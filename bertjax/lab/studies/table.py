"""The table of a study: its figures, as JSON and as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.lab.studies.differences import is_clear, standard_error
from bertjax.lab.studies.outcome import Figure, NoFigure, is_done, joined, read_figure
from bertjax.lab.studies.study import Column, Row, Study, folder_of
from bertjax.runs.health import health_status_of_run

_EQUAL = "≈"
_NOTHING = "-"


def content(study: Study, folder: Path) -> dict[str, Any]:
    """The table as JSON: for each row and column the figure, or null where there is none."""
    figures = [[_figure(row, column, folder) for column in study.columns] for row in study.rows]
    rows = []
    for number, row in enumerate(study.rows):
        other = study.compared_with(number)
        cells = {
            column.name: _cell(figure, baseline if other != number else None)
            | {"published": column.published.get(row.name)}
            for column, figure, baseline in zip(
                study.columns, figures[number], figures[other], strict=True
            )
        }
        rows.append({"name": row.name, "cells": cells})
    return {
        "title": study.title,
        "source": study.source,
        "against": study.against,
        "axis": study.axis,
        "columns": [{"name": column.name, "x": column.x} for column in study.columns],
        "rows": rows,
        "verdicts": _verdicts(study, folder),
    }


def _verdicts(study: Study, folder: Path) -> dict[str, str]:
    """The health (`bertjax.runs.health`) of each pre-training that is not healthy."""
    statuses = {
        stage.name: health_status_of_run(folder_of(stage, folder))
        for stage in study.stages()
        if stage.program == "pretrain" and is_done(stage, folder)
    }
    return {name: str(status) for name, status in statuses.items() if status.is_bad}


def _figure(row: Row, column: Column, folder: Path) -> Figure | None:
    stages = row.of(column.stage)
    if not stages or not all(is_done(stage, folder) for stage in stages):
        return None
    try:
        return joined([read_figure(stage, column.figure, folder) for stage in stages])
    except NoFigure as error:  # the other cells keep theirs
        print(f"{row.name}, {column.name}: left empty: {error}", flush=True)
        return None


def _cell(figure: Figure | None, baseline: Figure | None) -> dict[str, Any]:
    cell: dict[str, Any] = dict.fromkeys(
        (
            *("mean", "deviation", "values"),
            *("difference", "standard_error", "degrees_of_freedom", "clear"),
        )
    )
    if figure:
        cell |= {"mean": figure.mean, "deviation": figure.deviation, "values": list(figure.values)}
    if figure and baseline:
        difference, error = figure.mean - baseline.mean, standard_error(figure, baseline)
        cell |= {
            "difference": difference,
            "standard_error": error and error.value,
            "degrees_of_freedom": error and error.freedom,
            "clear": is_clear(difference, error),
        }
    return cell


def text(table: Mapping[str, Any]) -> str:
    """A table of `content` in Markdown, with a legend."""
    names, *rows = in_cells(table)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes(table)])


def in_cells(table: Mapping[str, Any]) -> list[list[str]]:
    """The lines of a table of `content`, the names of its columns first, as texts."""
    names = [column["name"] for column in table["columns"]]
    rows = [[row["name"], *(_shown(row["cells"][name]) for name in names)] for row in table["rows"]]
    return [["", *names], *rows]


def notes(table: Mapping[str, Any]) -> list[str]:
    """The lines below a table of `content`: its legend, and what is bad of its runs' health."""
    bad = [f"{name} is not healthy: {says}" for name, says in table["verdicts"].items()]
    return [_legend(table), *bad]


def _shown(cell: Mapping[str, Any]) -> str:
    if cell["mean"] is None:
        shown = _NOTHING
    else:
        digits = 2 if abs(cell["mean"]) >= 1 else 3
        spread = "" if cell["deviation"] is None else f" ± {cell['deviation']:.{digits}f}"
        equal = f" {_EQUAL}" if cell["clear"] is False else ""
        shown = f"{cell['mean']:.{digits}f}{spread}{equal}"
    return shown if cell["published"] is None else f"{shown} ({cell['published']:g})"


def _legend(table: Mapping[str, Any]) -> str:
    cells = [cell for row in table["rows"] for cell in row["cells"].values()]
    seeds = sorted({len(cell["values"]) for cell in cells if cell["values"]})
    lines = []
    if seeds:
        lines.append(f"Seeds: {_alternatives(seeds)}; ± is their standard deviation.")
    if any(cell["clear"] is False for cell in cells):
        other = "first row" if table["against"] == "first" else "row above"
        lines.append(f"{_EQUAL}: not clearly different from the {other} (t test, 5 %).")
    if any(cell["published"] is not None for cell in cells):
        lines.append(f"In brackets: {table['source']}.")
    return " ".join(lines)


def _alternatives(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
