"""Counts the instruction words that a TPU core executes, from the compiler's last dumps.

A core executes one bundle a cycle. A dump lists the bundles of one instruction of the program in
their order, with the depth of loops; the number of a loop's rounds stands in its exit test. The
time in which a core waits for memory or for another chip is not in it.
"""

import functools
import os
import re
import tempfile
from pathlib import Path

_DUMP = re.compile(r"\d+-(.+)-\d+-final_bundles\.txt")
# Address, label, a ">" for each loop around it, and the bundle.
_ROW = re.compile(r"\s*(?:0x)?[0-9a-f]+\s+(?:([A-Z]{2}) *)?:((?:\s*>)*)\s*(\{.*)")
_ROUNDS = re.compile(r"scmp\.ge\.s32\.totalorder \S+, (\d+) /\* loop exit test")


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
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    if flags(folder()) not in given:
        os.environ["LIBTPU_INIT_ARGS"] = f"{given} {flags(folder())}".strip()


def forget(where: Path) -> None:
    """Removes the dumps that are there."""
    for file in where.iterdir():
        file.unlink()


def dumped(where: Path) -> dict[str, int]:
    """The bundles that one execution of an instruction takes, by the instruction's name.

    The compiler compiles instructions alike once, and dumps the first.
    """
    files = ((_DUMP.fullmatch(file.name), file) for file in where.iterdir())
    return {
        match[1]: executed(file.read_text(encoding="utf-8", errors="replace"))
        for match, file in files
        if match
    }


def executed(dump: str) -> int:
    """The bundles that a dump's program executes, with the rounds of its loops.

    A loop whose number of rounds depends on data is counted with one round; a part that only some
    rounds execute, as often as the others.
    """
    rows = [row for row in map(_ROW.match, dump.splitlines()) if row]
    depths = [row[2].count(">") for row in rows]
    begins = [place for place, row in enumerate(rows) if row[1] == "LB"]
    loops = []  # (first bundle, last bundle) of each, the outer before the inner
    for number, first in enumerate(begins):
        depth = depths[first]
        after = next((b for b in begins[number + 1 :] if depths[b] <= depth), len(rows))
        # Among them are bundles that the compiler moved here from outside, with a lower depth.
        last = max(place for place in range(first, after) if depths[place] >= depth)
        loops.append((first, last))
    rounds = dict.fromkeys(loops, 1)
    for place, row in enumerate(rows):
        if found := _ROUNDS.search(row[3]):
            around = [loop for loop in loops if loop[0] <= place <= loop[1]]
            own = [loop for loop in around if depths[loop[0]] == depths[place]]
            rounds[(own or around)[-1]] = int(found[1])
    times = [1] * len(rows)
    for (first, last), number in rounds.items():
        for place in range(first, last + 1):
            times[place] *= number
    return sum(times)
