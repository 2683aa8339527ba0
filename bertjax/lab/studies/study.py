"""A study as data: the rows and columns of a table, the runs after them, and published figures."""

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_choice
from bertjax.base.errors import InputError
from bertjax.base.limits import Count, check

PLAN = ".plan.json"  # of STUDY/NAME.plan.json, which has the rows and stages of the study NAME
FIRST, PREVIOUS = "first", "previous"
# Programs that write into another stage's run.
EVALUATE, MASKED_TEXT, GRAMMAR = "evaluate", "masked_text", "grammar"
EVALUATIONS = (EVALUATE, MASKED_TEXT, GRAMMAR)
_OF_JSON = (
    "a text, and what JSON can hold: texts, numbers (int() or float() of numpy's), bools, lists, "
    "dicts"
)
_NO_CHARACTER = re.compile("[\ud800-\udfff]")  # Python's form of bytes that are not UTF-8


@dataclasses.dataclass(frozen=True)
class Stage:
    """One run of a program; its folder is STUDY/runs/NAME. Rows that name the same stage share it.

    Attributes:
      name: of its folder.
      program: of `bertjax.programs.study.PROGRAMS`.
      config: "FILE.py" or "FILE.py:WORD", as in `--config`; "" for a program that takes none.
      settings: key of the config -> value ("optimizer.name": "muon"); a key that the file lacks is
        added. For a program without a config, its flags.
      start: the stages that must be done before: whose weights it begins with, or whose runs it
        evaluates or joins.
      step: of the checkpoint of `start` that it begins with; None for the newest one.
      data: the folder of its task's files, or the file of minimal pairs, in the folder of all data.
      part: what of its results a row shows, where they have parts (the choices of features, the
        tasks of GLUE). Stages that differ in it alone are the same.
    """

    name: str
    program: str
    config: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    start: tuple["Stage", ...] = ()
    step: int | None = None
    data: str = ""
    part: str = dataclasses.field(default="", compare=False)

    def __post_init__(self):
        where = f"stage {self.name!r}"
        _check_texts(where, self, "name", "program", "config", "data", "part")
        is_folder_name = self.name.isprintable() and not set(self.name) & set("/\\")
        is_folder_name = is_folder_name and bool(self.name.strip(" .")) and len(self.name) <= 200
        _require(
            is_folder_name,
            f"{where}: name",
            self.name,
            "the plain name of a folder, without a path",
        )
        _require(isinstance(self.settings, Mapping), f"{where}: settings", self.settings, "a dict")
        for key, value in self.settings.items():
            fits = isinstance(key, str) and _is_json(value)
            _require(fits, f"{where}: settings: {key!r}", value, _OF_JSON)
        fits = _all_are(self.start, Stage) and isinstance(self.start, tuple)
        _require(fits, f"{where}: start", self.start, "a tuple of stages")
        check(f"{where}: step", self.step, Count | None)

    def as_dict(self) -> dict[str, Any]:
        """The stage as JSON, with the names of the stages before it."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.compare
        }
        return fields | {
            "settings": dict(self.settings),
            "start": [stage.name for stage in self.start],
        }


def folder_of(stage: Stage, study: Path) -> Path:
    """The run folder that a stage writes; an evaluation writes into that of the evaluated run."""
    run = stage.start[0] if stage.program in EVALUATIONS else stage
    return study / "runs" / run.name


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the table: key -> the stages whose figures the columns with that key show.

    Several stages are the same run with several seeds, and the figure is their mean.
    """

    name: str
    stages: Mapping[str, Stage | tuple[Stage, ...]]

    def __post_init__(self):
        where = f"row {self.name!r}"
        _check_texts(where, self, "name")
        of = isinstance(self.stages, Mapping)
        _require(of, f"{where}: stages", self.stages, "a dict, key -> stage")
        for key, stages in self.stages.items():
            fits = isinstance(key, str) and (isinstance(stages, Stage) or _all_are(stages, Stage))
            be = "a text, and a stage or a tuple of stages"
            _require(fits, f"{where}: stages: {key!r}", stages, be)

    def of(self, key: str) -> tuple[Stage, ...]:
        """The stages of a key; () if the row has none."""
        stages = self.stages.get(key, ())
        return (stages,) if isinstance(stages, Stage) else tuple(stages)


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
      stage: the key of the rows' stages.
      figure: the place of the figure in what the stage writes: "dev/f1" of results.json,
        "128/mlm_loss" of evaluation.json (`bertjax.lab.studies.outcome`).
      published: row -> the figure that was published.
      x: the column's place on the axis of a picture of curves; None in a table.
    """

    name: str
    stage: str
    figure: str
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    x: float | None = None

    def __post_init__(self):
        where = f"column {self.name!r}"
        _check_texts(where, self, "name", "stage", "figure")
        _require(
            isinstance(self.published, Mapping), f"{where}: published", self.published, "a dict"
        )
        for row, value in self.published.items():
            _require(_is_number(value), f"{where}: published: {row!r}", value, "a number")
        _require(self.x is None or _is_number(self.x), f"{where}: x", self.x, "a number, or None")


@dataclasses.dataclass(frozen=True)
class Study:
    """A table.

    Attributes:
      source: where the columns' published figures stand, of which model and which split.
      against: the row that a row is compared with: `FIRST` or `PREVIOUS`.
      axis: the title of the axis of the columns' `x`.
    """

    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    source: str = ""
    against: str = FIRST
    axis: str = ""

    def __post_init__(self):
        _check_texts("the study", self, "title", "source", "axis")
        for field, type_ in {"rows": Row, "columns": Column}.items():
            value = getattr(self, field)
            _require(_all_are(value, type_), field, value, f"a tuple of {type_.__name__}s")
            object.__setattr__(self, field, tuple(value))
        self._check_names()
        for column in self.columns:
            if not any(row.of(column.stage) for row in self.rows):
                known = sorted({key for row in self.rows for key in row.stages})
                raise InputError(
                    f"column {column.name!r}: no row has a stage {column.stage!r}; there are "
                    f"{', '.join(known) or 'none'}"
                )
        self.stages()

    def _check_names(self) -> None:
        named: dict[str, Sequence[Row | Column]] = {"row": self.rows, "column": self.columns}
        for what, things in named.items():
            if not things:
                raise InputError(f"the study has no {what}")
            for number, thing in enumerate(things, start=1):
                if thing.name.splitlines() != [thing.name]:
                    raise InputError(f"{what} {number} has no name of one line")
            names = [thing.name for thing in things]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise InputError(f"two {what}s have the name {twice!r}: give each its own")
        for column in self.columns:
            if unknown := set(column.published) - {row.name for row in self.rows}:
                raise InputError(f"column {column.name!r}: published: no row {unknown.pop()!r}")
        check_choice("against", self.against, (FIRST, PREVIOUS))

    def only(self, keys: Collection[str]) -> "Study":
        """The study without the columns whose stages have other keys; all of it if there are none.

        Raises InputError if no column has one of the keys.
        """
        known = dict.fromkeys(column.stage for column in self.columns)
        if unknown := [key for key in keys if key not in known]:
            raise InputError(f"--only: no column of {unknown[0]!r}; there are {', '.join(known)}")
        if not keys:
            return self
        rows = tuple(
            Row(row.name, {key: row.stages[key] for key in row.stages if key in keys})
            for row in self.rows
        )
        columns = tuple(column for column in self.columns if column.stage in keys)
        return dataclasses.replace(self, rows=rows, columns=columns)

    def compared_with(self, number: int) -> int:
        """The number of the row that row `number` is compared with; its own if there is none."""
        return 0 if self.against == FIRST else max(0, number - 1)

    def stages(self, *rows: Row) -> list[Stage]:
        """The stages of some rows, or of all: each once, and after those that it needs.

        Raises InputError if two stages have one name, and differ; or if a stage needs itself.
        """
        found: dict[str, Stage] = {}
        for stage in _stages_in_order(rows or self.rows):
            if found.setdefault(stage.name, stage) != stage:
                raise InputError(
                    f"two stages have the name {stage.name!r} and differ: give each its own"
                )
        return list(found.values())

    def as_dict(self) -> dict[str, Any]:
        """Rows and stages as JSON, by which the study is recognized."""
        return {
            "rows": [row.name for row in self.rows],
            "stages": {stage.name: stage.as_dict() for stage in self.stages()},
        }


def _stages_in_order(rows: Iterable[Row]) -> Iterator[Stage]:
    def with_dependencies(stage: Stage, *after: Stage) -> Iterator[Stage]:
        if any(each is stage for each in after):
            raise InputError(f"stage {stage.name!r}: start: it needs itself")
        for each in stage.start:
            yield from with_dependencies(each, stage, *after)
        yield stage

    for row in rows:
        for key in row.stages:
            for stage in row.of(key):
                yield from with_dependencies(stage)


def _check_texts(where: str, thing: Any, *fields: str) -> None:
    for field in fields:
        value = getattr(thing, field)
        fits = isinstance(value, str) and not _NO_CHARACTER.search(value)
        _require(fits, f"{where}: {field}", value, "a text")


def _require(fits: bool, what: str, value: Any, be: str) -> None:
    if not fits:
        raise InputError(f"{what}={value!r:.80}: must be {be}")


def _all_are(values: Any, type_: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(each, type_) for each in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    return value is None or isinstance(value, str | bool) or _is_number(value)
