"""Tests of the judgement of tries, and of the exit code of a campaign."""

import json
import signal

import pytest

from tests.campaigns.outcome import (
    ENDLESS,
    REPORTED,
    SILENT,
    SURVIVED,
    TRACEBACK,
    End,
    Meant,
    Try,
    judge,
    report,
)

_BUG = "Traceback (most recent call last)\n  File ...\nKeyError: 'step'\n"


_TASK = f"ERROR:asyncio:Task exception was never retrieved\n{_BUG}"


_LOOP = 'Traceback (most recent call last)\n  File "uvloop/loop.pyx", line 1, in Loop\n'


@pytest.mark.parametrize(
    "end, right, outcome",
    [
        (End(0, "a warning\n"), True, SURVIVED),
        (End(0, ""), False, SILENT),
        (End(0, _BUG), True, TRACEBACK),
        (End(0, _TASK), True, SURVIVED),
        (End(0, _TASK), False, SILENT),
        (End(2, f"{_TASK}error: all are damaged\n"), False, REPORTED),
        (End(2, f"error: all are damaged\n{_TASK}"), False, REPORTED),
        (End(2, f"{_LOOP}RuntimeError: Event loop is closederror: all are damaged\n"), 0, REPORTED),
        (End(1, _TASK), False, TRACEBACK),
        (End(2, "a warning\nerror: run: no such folder\n"), False, REPORTED),
        (End(2, "error: one\nerror: two\n"), False, TRACEBACK),
        (End(2, "error: one\nmore of it\n"), False, TRACEBACK),
        (End(2, ""), False, TRACEBACK),
        (End(1, "FATAL Flags parsing error:\n  flag --top=x: no\nPass --help\n"), 0, TRACEBACK),
        (End(1, _BUG), False, TRACEBACK),
        (End(1, "something else\n"), False, TRACEBACK),
        (
            End(1, "", "one: failed: error: cut\ntwo: not run\nsix: failed: error: cut\n"),
            0,
            REPORTED,
        ),
        (End(1, "", "one: failed: error: cut\ntwo: failed: KeyError: 'step'\n"), 0, TRACEBACK),
        (End(-signal.SIGSEGV, ""), False, TRACEBACK),
        (End(None, ""), False, ENDLESS),
        (End(1, f"{_BUG}MemoryError\n"), False, ENDLESS),
    ],
)
def test_outcomes(end, right, outcome):
    assert judge(end, right=right)[0] == outcome


def test_the_detail_is_the_line_of_the_error():
    assert (
        judge(End(1, f"{_BUG}JAX has left out some of it\n"), right=False)[1] == "KeyError: 'step'"
    )
    assert judge(End(2, "loading\nerror: run: no run\n"), right=False)[1] == "error: run: no run"


def test_other_codes_of_a_process_that_did_its_work():
    stopped = End(75, "stopped\n")
    assert judge(stopped, right=True, done=(0, 75))[0] == SURVIVED
    assert judge(stopped, right=True)[0] == TRACEBACK


def test_findings_that_are_not_meant_fail(tmp_path, capsys):
    tries = [
        Try("run", "cut", SILENT, "no word"),
        Try("run", "emptied", REPORTED, "error: empty"),
        Try("store", "cut", TRACEBACK, "KeyError"),
    ]
    meant = [Meant("run: c*", SILENT, "nobody reads it"), Meant("store: *", SILENT, "as well")]
    output = tmp_path / "tries.json"
    assert report(tries, meant, output) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[0].split() == [
        "survived",
        "reported",
        "traceback",
        "silent",
        "endless",
    ]
    assert [line.split() for line in said.splitlines()[1:4]] == [
        ["run", "0", "1", "0", "1", "0"],
        ["store", "0", "0", "1", "0", "0"],
        ["all", "0", "1", "1", "1", "0"],
    ]
    assert "3 tries, 2 findings, 1 of them meant" in said
    rows = json.loads(output.read_text())["tries"]
    assert [row["meant"] for row in rows] == ["nobody reads it", None, None]
    assert report(tries[:2], meant) == 0
