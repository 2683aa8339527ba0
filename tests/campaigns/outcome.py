"""The outcomes of a campaign's tries (survived, reported, traceback, silent or endless) as a table.

  survived   exit code 0, and the result is right
  reported   one line says what is wrong: "error: ..." with exit code 2; a study, which ends with 1,
             says so of each stage that failed
  traceback  any other end: a bug's traceback, a signal, an exit code without a message
  silent     exit code 0 without a message, but the input or the result is wrong
  endless    the program exceeded its limit of time or memory

A library's report of a task in the background is no traceback where the program ended well, or
with its own error. The last three are findings. A finding that is meant to be so is named with a
reason (`Meant`); any other makes the campaign exit with 1.
"""

import argparse
import fnmatch
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from bertjax.programs.commandline import EXIT_BAD_INPUT

SURVIVED, REPORTED, TRACEBACK, SILENT, ENDLESS = OUTCOMES = (
    *("survived", "reported", "traceback", "silent", "endless"),
)
FINDINGS = (TRACEBACK, SILENT, ENDLESS)

_TRACEBACK = "Traceback (most recent call last)"
# The marks of reports by asyncio and uvloop: they are about Orbax's other tasks, which fail when a
# checkpoint is damaged and the program has reported it.
_OF_TASKS = ("Task exception was never retrieved", "Exception ignored in", "uvloop/loop.pyx")
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Invalid|Iteration|Interrupt)\b")  # its last line
_FAILED = ": failed: "  # what a study prints between a stage's name and the end of its log
_NO_MEMORY = ("MemoryError", "std::bad_alloc", "RESOURCE_EXHAUSTED", "Cannot allocate memory")


class End(NamedTuple):
    """The end of a process.

    Attributes:
      code: its exit code, -N for signal N; None: it exceeded its limit of time or memory.
      errors: its standard error.
      output: its standard output.
    """

    code: int | None
    errors: str
    output: str = ""


class Try(NamedTuple):
    """A try and its outcome.

    Attributes:
      group: the row of the table.
      name: what was tried; group and name together are unique in a campaign.
      outcome: one of `OUTCOMES`.
      detail: the most informative line of its output.
    """

    group: str
    name: str
    outcome: str
    detail: str = ""


class Meant(NamedTuple):
    """Findings that are intended.

    Attributes:
      pattern: a pattern of "GROUP: NAME", in the form of file name patterns.
      outcome: one of `FINDINGS`.
      reason: the reason why they are intended.
    """

    pattern: str
    outcome: str
    reason: str

    def covers(self, each: Try) -> bool:
        name = f"{each.group}: {each.name}"
        return each.outcome == self.outcome and fnmatch.fnmatchcase(name, self.pattern)


def judge(end: End, *, right: bool, done: Collection[int] = (0,)) -> tuple[str, str]:
    """The outcome and its detail.

    Args:
      right: whether the result is right, if the process ended with a code of `done`.
      done: the exit codes of a process that did its work.
    """
    lines = [line for line in end.errors.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no word"
    if end.code is None or any(word in end.errors for word in _NO_MEMORY):
        return ENDLESS, last
    of_tasks = any(mark in end.errors for mark in _OF_TASKS)
    reports = [line for line in lines if "error: " in line]
    if of_tasks and end.code == EXIT_BAD_INPUT and reports:
        return REPORTED, reports[-1]
    if _TRACEBACK in end.errors and not (of_tasks and end.code in done):
        return TRACEBACK, next(filter(_EXCEPTION.match, reversed(lines)), last)
    if end.code in done:
        return (SURVIVED, "") if right else (SILENT, last)
    if end.code == EXIT_BAD_INPUT and [line for line in lines if line.startswith("error: ")] == [
        last
    ]:
        return REPORTED, last
    failed = [line for line in end.output.splitlines() if _FAILED in line]
    if end.code == 1 and failed and all(f"{_FAILED}error: " in line for line in failed):
        return REPORTED, failed[0]
    return TRACEBACK, f"exit {end.code}: {last}"


def arguments(program: str | None) -> argparse.ArgumentParser:
    """The arguments that every campaign has; `program` is its docstring."""
    parser = argparse.ArgumentParser(
        description=program, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="about how long, on two cores")
    parser.add_argument("--seed", type=int, default=0, help="decides which tries are made")
    parser.add_argument("--output", type=Path, help="a JSON file of every try")
    parser.add_argument(
        "--only", default="*", help="a pattern of 'GROUP: NAME', as in the list of findings"
    )
    return parser


def report(tries: Sequence[Try], meant: Sequence[Meant], output: Path | None = None) -> int:
    """Prints the table and the findings, writes them as JSON, and returns the exit code."""
    print(_table(tries))
    reasons = [next((one.reason for one in meant if one.covers(each)), None) for each in tries]
    findings = [
        (each, reason)
        for each, reason in zip(tries, reasons, strict=True)
        if each.outcome in FINDINGS
    ]
    for each, reason in sorted(findings, key=lambda pair: FINDINGS.index(pair[0].outcome)):
        why = f"\n  meant: {reason}" if reason else ""
        print(f"{each.outcome}  {each.group}: {each.name}\n  {each.detail[:300]}{why}")
    open_findings = sum(reason is None for _, reason in findings)
    print(
        f"{len(tries)} tries, {len(findings)} findings, {len(findings) - open_findings} of them "
        f"meant"
    )
    if output:
        rows = [
            {**each._asdict(), "meant": reason} for each, reason in zip(tries, reasons, strict=True)
        ]
        output.write_text(json.dumps({"tries": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if open_findings else 0


def _table(tries: Sequence[Try]) -> str:
    groups = list(dict.fromkeys(each.group for each in tries))
    rows = [["", *OUTCOMES]]
    for group in (*groups, None):
        mine = [each.outcome for each in tries if group in (each.group, None)]
        rows.append([group or "all", *(str(mine.count(outcome)) for outcome in OUTCOMES)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )
