"""Counts the instruction words that a TPU core executes, from the compiler's last dumps.

A core executes one bundle a cycle. A dump lists the bundles of one instruction of the program in
their order. A branch back makes a loop, and a branch forward skips bundles. The time in which a
core waits for memory or for another chip is not in it.
"""

import functools
import operator
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_DUMP = re.compile(r"\d+-(.+)-\d+-final_bundles\.txt")
_ROW = re.compile(r"\s*(?:0x)?[0-9a-f]+ +(?:[A-Z]{2} *)?:[ >]*\{")  # address, label, depth, bundle
_REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
_BRANCH = re.compile(r"sbr\.rel \((!?)(%\w+)\) target = \$region(\d+)")
_SCALAR = re.compile(r"(%[ps]\w+) = ([^;}]*)")  # its operation, with comments
_COMPARISON = re.compile(r"scmp\.(ge|gt|le|lt|eq|ne)\.s32\.totalorder (%\w+), (\d+)\b")
_PHI = re.compile(r"sphi (%\w+), (%\w+)")  # the first value, and that of the next round
_NUMBER = re.compile(r"\w+(?:\.s32)? (?:\(!?%\w+\), )?(\d+)\b(?:, (%\w+))?")  # a move or a sum


@functools.cache
def _kept() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="bertjax-")  # it is removed when the process ends


def folder() -> Path:
    """The folder of this process's dumps."""
    return Path(_kept().name)


def flags(where: Path) -> str:
    """The words of LIBTPU_INIT_ARGS that let libtpu dump the bundles of all that it compiles."""
    return (
        f"--xla_jf_dump_to={where} --xla_jf_dump_llo_text=true"
        " --xla_jf_dump_llo_pass_label_regex=final_bundles"
    )


def ask_libtpu() -> None:
    """Lets libtpu dump into `folder`; call it before using a device."""
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    if flags(folder()) not in arguments:
        os.environ["LIBTPU_INIT_ARGS"] = f"{arguments} {flags(folder())}".strip()


def forget(where: Path) -> None:
    """Removes the dumps that are there."""
    for file in where.iterdir():
        file.unlink()


def instructions(where: Path) -> int:
    """The number of instructions whose dumps are there."""
    return sum(_DUMP.fullmatch(file.name) is not None for file in where.iterdir())


def dumped(where: Path, rounds: Mapping[str, float]) -> dict[str, int]:
    """Name -> bundles of one execution; of equal instructions, the compiler dumps the first."""
    files = ((_DUMP.fullmatch(file.name), file) for file in where.iterdir())
    return {
        match[1]: executed(
            file.read_text(encoding="utf-8", errors="replace"), rounds.get(match[1], 1)
        )
        for match, file in files
        if match
    }


def executed(dump: str, rounds: float = 1) -> int:
    """The bundles that a dump's program executes, with the rounds of its loops.

    Kernels, and most fusions, work in a loop that has one or two rounds more than blocks, because
    loads and stores run during the work on other blocks; these rounds skip the work. What only
    some rounds execute is counted as often as the others, unless the loop's counter alone
    decides. Of the loops whose number of rounds depends on data, the longest is counted with
    `rounds`, their mean number, and the others with one.
    """
    rows: list[str] = []  # a bundle may go on in further lines
    for line in dump.splitlines():
        if _ROW.match(line):
            rows.append(line)
        elif rows:
            rows[-1] += line
    scalars = dict(pair for row in rows for pair in _SCALAR.findall(row))
    branches = list(_branches(rows))
    times = [1.0] * len(rows)
    loops = {
        back: _rounds(scalars, back.predicate) for back in branches if back.target <= back.place
    }
    by_data = [back for back, (_, values) in loops.items() if values is None]
    longest = max(by_data, key=lambda back: back.last - back.target, default=None)
    for back, (counter, values) in loops.items():
        values = range(1) if values is None else values
        number = rounds if back is longest else len(values)
        of_rows = dict.fromkeys(range(back.target, back.last + 1), number)
        for branch in branches:
            if back.target <= branch.place < branch.target <= back.last:
                truths = _truths(scalars, branch.predicate, counter, values)
                stays = len(values) - truths.count(not branch.negated)
                for place in range(branch.last + 1, branch.target):
                    of_rows[place] = min(of_rows[place], stays)
        for place, number in of_rows.items():
            times[place] *= number
    return round(sum(times))


class _Branch(NamedTuple):
    """A branch in row `place`; rows after it up to `last`, one or four, are executed with it."""

    place: int
    last: int
    target: int
    predicate: str
    negated: bool


def _branches(rows: Sequence[str]) -> Iterator[_Branch]:
    begins: dict[str, int] = {}  # region -> its first row
    for place, row in enumerate(rows):
        for region in _REGION.findall(row):
            begins.setdefault(region, place)
    for place, row in enumerate(rows):
        for negated, predicate, region in _BRANCH.findall(row):
            if region in begins:  # the others lead to the end of the program
                later = range(place + 1, len(rows))
                last = next((at for at in later if "End region" in rows[at]), len(rows) - 1)
                yield _Branch(place, last, begins[region], predicate, bool(negated))


def _rounds(scalars: Mapping[str, str], predicate: str) -> tuple[str, range | None]:
    """The name of a loop's counter, and its value in each round; None if data decide."""
    test = scalars.get(predicate, "")
    bound = _COMPARISON.match(test)
    if not bound or bound[1] != "ge" or "loop exit test" not in test:
        return "", None
    following, stop = bound[2], int(bound[3])
    if step := _NUMBER.match(scalars.get(following, "")):
        for counter, operation in scalars.items():
            phi = _PHI.match(operation)
            if phi and (counter == step[2] or phi[2] == following):
                start = _NUMBER.match(scalars.get(phi[1], ""))
                return counter, range(int(start[1]) if start else 0, stop, int(step[1]))
    return "", range(stop)


def _truths(
    scalars: Mapping[str, str], predicate: str, counter: str, values: Sequence[int]
) -> list[bool | None]:
    """Whether a predicate is true, for each value of the counter; None if more than it decides."""
    operation = scalars.get(predicate, "")
    if (found := _COMPARISON.match(operation)) and found[2] == counter:
        compare = getattr(operator, found[1])
        return [compare(value, int(found[3])) for value in values]
    if found := re.match(r"pnand (%\w+), (%\w+) *$", operation):
        both = zip(
            *(_truths(scalars, operand, counter, values) for operand in found.groups()), strict=True
        )
        return [True if False in pair else None if None in pair else False for pair in both]
    return [None] * len(values)
