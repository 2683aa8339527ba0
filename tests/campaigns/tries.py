"""The tries of a campaign: many are planned, some of them are chosen, made, and judged."""

import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import programs
from made import Command, Made
from outcome import REPORTED, SILENT, End, Meant, Try, arguments, judge, report

from bertjax.base.progress import Progress

_TRIES_A_MINUTE = 40  # on two cores


class Planned(NamedTuple):
    """A try that may be made.

    Attributes:
      group, name: see `outcome.Try`.
      command: the command that is run.
      change: makes the input wrong; it maps (a job with valid input, randomness) to a job.
      names: words of which a message must have one, if it reports the wrong input; () if any
        refusal is right.
    """

    group: str
    name: str
    command: Command
    change: Callable[[programs.Job, random.Random], programs.Job]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


def campaign(
    program: str | None,
    plan: Callable[[Made], Iterable[Planned]],
    meant: Sequence[Meant],
    wanted: Collection[str] | None = None,
) -> None:
    """Runs a campaign: reads its arguments, makes the tries, and exits with its code.

    Args:
      program: the campaign's docstring.
      plan: makes all tries from the artefacts.
      wanted: see `made.Made`.
    """
    options = arguments(program).parse_args()
    at_once = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="bertjax-campaign-") as name:
        folder = Path(name)
        programs.prepare_environment(folder)
        made = Made(folder / "made", at_once, wanted)
        matching = [each for each in plan(made) if fnmatchcase(str(each), options.only)]
        some = chosen(matching, round(options.minutes * _TRIES_A_MINUTE), options.seed)
        print(f"{len(some)} of {len(matching)} tries", flush=True)
        made.learn(each.command for each in some)
        with Progress("tries", len(some), " tries") as progress:
            tries = []
            for each in _make(some, made, folder / "tries", at_once, options.seed):
                tries.append(each)
                progress.update()
    sys.exit(report(sorted(tries), meant, options.output))


def chosen(plan: Iterable[Planned], count: int, seed: int) -> list[Planned]:
    """Chooses `count` tries, from every group in turn; the choice depends only on the seed."""
    groups: dict[str, list[Planned]] = {}
    for each in plan:
        groups.setdefault(each.group, []).append(each)
    waiting = [
        sorted(groups[group], key=partial(_place, seed))
        for group in sorted(groups, key=partial(_place, seed))
    ]
    found: list[Planned] = []
    while len(found) < count and any(waiting):
        found += [some.pop() for some in waiting if some][: count - len(found)]
    return found


def _place(seed: int, name: Any) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def _make(
    some: Sequence[Planned], made: Made, folder: Path, at_once: int, seed: int
) -> Iterator[Try]:
    places = {folder / f"{number:05}": each for number, each in enumerate(some)}
    before: dict[Path, dict[str, str]] = {}

    def jobs() -> Iterator[programs.Job]:
        for place, each in places.items():
            job = each.command.job(made.folder, place)
            job = each.change(job, random.Random(f"{seed} {each}"))
            before[place] = contents(place)
            yield job

    for job, end in programs.run(jobs(), at_once):
        each, was = places[job.folder], before.pop(job.folder)
        usual = made.learned.get(each.command.line)
        outcome, detail = _judged(each, job.folder, end, usual)
        if outcome == REPORTED and end.code != 0:
            left = [
                name for name, digest in contents(job.folder).items() if was.get(name) != digest
            ]
            detail += f" [but wrote: {', '.join(left[:5])}]" if left else ""
        yield Try(each.group, each.name, outcome, detail)
        shutil.rmtree(job.folder)


def contents(folder: Path) -> dict[str, str]:
    """Maps each file, except locks, to its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name != ".lock"
    }


def _judged(
    each: Planned, folder: Path, end: End, usual: tuple[Any, End] | None
) -> tuple[str, str]:
    """Judges a try.

    Args:
      usual: the result and the end of the command with valid input; None if it must be refused.
    """
    try:
        right = bool(usual) and end.code == 0 and each.command.result(folder, end) == usual[0]
    except (OSError, ValueError, KeyError, TypeError):  # the output cannot be read
        right = False
    outcome, detail = judge(end, right=right)
    if outcome == SILENT and usual:
        said = set(map(_shape, _lines(usual[1])))
        reported = [line for line in _lines(end) if any(name in line for name in each.names)]
        if new := [line for line in reported if _shape(line) not in said]:
            return REPORTED, new[0].strip()
    return outcome, detail


def _lines(end: End) -> list[str]:
    return [*end.output.splitlines(), *end.errors.splitlines()]


def _shape(line: str) -> str:
    """A line without its numbers, which differ in each run."""
    return re.sub(r"\d[\d.,:]*", "0", line)
