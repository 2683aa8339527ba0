"""The page of a folder, or of several: runs of any kind, and studies."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertjax.base.files import read_json
from bertjax.base.validation import record
from bertjax.lab.pages import results
from bertjax.lab.pages.html import Html, element, records, table
from bertjax.lab.pages.metrics import STEPS, Lines, charts
from bertjax.lab.pages.page import Section
from bertjax.lab.studies.study import PLAN
from bertjax.lab.studies.table import in_cells, notes
from bertjax.runs.health import RunHealth, health_of_run
from bertjax.runs.run_folder import is_of_tasks, read_config
from bertjax.training.health import HEALTHY, HealthStatus
from bertjax.training.metrics_log import METRICS_FILE, read_metrics

_TABLE = record(title=str, columns=list, rows=list, verdicts=dict)
_READ = (
    *("*.json*", "*.png", "runs/*/*.json*", "trials/*/*.json*", "predictions/*"),
    *("*/trials/*/*.json*", "*/predictions/*"),  # of each task or choice of layers
)


def state_of(folders: Sequence[Path]) -> str:
    """A text that changes when a file changes that a page of the folders is made from."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for pattern in _READ for path in folder.glob(pattern)):
            about = path.stat()
            digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def sections(folders: Sequence[Path], over: str = STEPS) -> list[Section]:
    """The sections of a page of a folder; of several folders, their curves come together first."""
    if len(folders) == 1:
        return list((_study if _plans(folders[0]) else _run)(folders[0], over))
    found = [_Run(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]
    together = [
        Lines(f"{run.name} {each.name}".strip(), each.rows) for run in found for each in run.lines
    ]
    separate = [section for run in found for section in run.sections(alone=False)]
    return [_curves("Curves", together, over), *separate]


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names; if two have the same, with the folders in which they lie."""
    paths = [folder.resolve() for folder in folders]
    if len({path.name for path in paths}) == len(paths):
        return [path.name for path in paths]
    above = os.path.commonpath(paths)
    return [str(path.relative_to(above)) for path in paths]


def _run(folder: Path, over: str) -> Iterator[Section]:
    run = _Run(folder, folder.resolve().name)
    first, *others = run.sections(alone=True)
    yield first
    yield _curves("Curves", run.lines, over, run.health)
    yield from others


def _curves(
    title: str, lines: Sequence[Lines], over: str, health: RunHealth | None = None
) -> Section:
    """The charts; as long as each would have single points, the lines as a table."""
    if drawn := charts(lines, health, over):
        return Section(title, [], drawn)
    rows = [{"of": each.name, **row} for each in lines for row in each.rows]
    if rows:
        return Section(title, [records(f"the lines of {METRICS_FILE}, too few for curves", rows)])
    note = element("p", f"There is no line of {METRICS_FILE} yet.", class_="note")
    return Section(title, [note])


class _Run:
    """A run, as its folder has it now; of fine-tuning, with lines of each trial and no health."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self._config = read_config(folder)
        trials = results.paths_in_folders(folder, "trials").items()
        self.lines = [
            Lines(name, read_metrics(path))
            for name, path in trials
            if (path / METRICS_FILE).exists()
        ] or [Lines("", read_metrics(folder))]
        self.health: RunHealth | None = None
        if "objective" in self._config and not is_of_tasks(self._config):
            self.health = health_of_run(folder)

    def sections(self, *, alone: bool) -> Iterator[Section]:
        """Yields all but the curves; the first has the health; alone, headings lack its name."""
        notes = []
        if self.health:
            notes.append(_note(self.health.status(self.lines[0].rows)))
        pictures = results.pictures(self.folder) if alone else ()
        title = self.name if not alone else "Verdict" if self.health else "The run"
        yield Section(title, [*notes, results.of_config(self._config), *pictures])
        found = results.evaluations if self.health else results.results
        for title, content, _ in found(self.folder):
            yield Section(title if alone else f"{self.name}: {title}", content)


def _note(status: HealthStatus) -> Html:
    """The health of a run, with a mark that is green if it is healthy, and red if it is bad."""
    mark = "note good" if status.name == HEALTHY else "note bad" if status.is_bad else "note"
    return element("p", str(status), class_=mark)


# ------------------------------------------------------------------------------- studies


def _plans(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{PLAN}"))


def _study(folder: Path, over: str) -> Iterator[Section]:
    """Yields the tables of the studies in a folder, and the curves of their runs."""
    for plan in _plans(folder):
        path = plan.with_name(plan.name.removesuffix(PLAN) + ".json")
        if not path.exists():
            yield Section(plan.name.removesuffix(PLAN), [element("p", "It has no table yet.")])
            continue
        found = read_json(path, _TABLE, hint="remove it, and the same command makes it again")
        names, *rows = in_cells(found)
        below = [element("p", line) for line in notes(found)]
        yield Section(found["title"], [table(path.name, names, rows), *below])
    yield Section("Pictures", list(results.pictures(folder)))
    paths = sorted(folder.glob(f"runs/*/{METRICS_FILE}"))
    runs = [Lines(path.parent.name, read_metrics(path.parent)) for path in paths]
    yield _curves("Curves of its runs", runs, over)
