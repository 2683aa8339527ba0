"""Stops every program that writes, at every kind of moment, and repeats the same command.

  python tests/campaigns/crashes.py --minutes=10 [--seed=1] [--output=FILE.json]

A program is stopped by kill -9, SIGTERM, SIGINT or SIGHUP: when its first line has run, when it has
made its first file, while it writes a file, and at random. After kill -9 it prints nothing; after
the others it prints one line, and ends with the exit code that README describes. Then the same
command must give the same result as if it had never been stopped: its files are equal bit by bit,
and there are no other files.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import made
import numpy as np
import programs
from outcome import ENDLESS, SILENT, TRACEBACK, End, Meant, Try, arguments, judge, report

from bertjax.base.errors import EXIT_STOPPED
from bertjax.base.signals import EXIT_INTERRUPTED

_BEFORE = "before the program"
MEANT = (
    Meant(f"*{_BEFORE}", TRACEBACK, "Python starts: nothing of ours has run, nothing is written"),
)

# Exit codes of a program that was stopped. Ctrl-C in training saves, and ends as SIGTERM does.
_ENDS = {
    signal.SIGKILL: (-signal.SIGKILL,),
    signal.SIGTERM: (EXIT_STOPPED,),
    signal.SIGINT: (EXIT_INTERRUPTED, EXIT_STOPPED),
    signal.SIGHUP: (EXIT_STOPPED,),
}
_WORDS = ("interrupted: ", "stopped ")  # the beginning of the line that a stopped program prints
_TO_ALL = (signal.SIGINT, signal.SIGHUP)  # a terminal sends them to all processes of a program
_SECONDS = 600  # the limit for a program that waits for ever


# --------------------------------------------------------------------------- the programs


def _trained(command: made.Command) -> Callable[[Path, End], Any]:
    """The result of `command`, with a digest of the run's parameters."""

    def result(folder: Path, end: End) -> Any:
        import jax  # only now, when the environment is prepared for it

        from bertjax.runs.source import load_run

        params = jax.tree_util.tree_leaves_with_path(load_run(folder / "run").params)
        bits = {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in params}
        return command.result(folder, end), bits

    return result


_PROGRAMS = {
    "prepare_corpus": made.PREPARE._replace(
        arguments=tuple(each.replace("workers=1", "workers=2") for each in made.PREPARE.arguments)
    ),
    "pretrain": made.PRETRAIN._replace(result=_trained(made.PRETRAIN)),
    "evaluate": made.EVALUATE,
    "finetune_glue": made.GLUE,
    "finetune_squad": made.SQUAD,
    "finetune_swag": made.SWAG,
    "finetune_ner": made.NER,
    "finetune_ner (features)": made.FEATURES,
    "finetune_table": made.TABLE,
    "finetune_triviaqa": made.TRIVIAQA,
    "ensemble": made.ENSEMBLE,
    "study": made.STUDY,
    "convert": made.CONVERT,
    "extract_features": made.EXTRACT,
    "predict": made.PREDICT,
}


# The artefacts of `made.Made` that they need; each needs those before it.
_MADE = ("corpus", "run", "glue-run")


class _Whole(NamedTuple):
    """A command that was never stopped.

    Attributes:
      result: see `made.Command`.
      files: the files in its folder at the end.
      cpu: its processor seconds.
    """

    result: Any
    files: frozenset[str]
    cpu: float


def _paths(folder: Path) -> Iterator[Path]:
    """All paths in a folder, without those that disappear meanwhile."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name).relative_to(folder)


def _files(folder: Path) -> frozenset[str]:
    """The files in a folder, without checkpoints and events, whose names differ in each run."""
    differ = {"checkpoints", "tensorboard"}
    return frozenset(str(path) for path in _paths(folder) if not differ & set(path.parts[:-1]))


# -------------------------------------------------------------------------- a process of it


class _Process:
    """A running command."""

    def __init__(self, job: programs.Job):
        program = programs.REPOSITORY / "launch" / f"{job.program}.py"
        self.folder, self.before, self.cpu = job.folder, _files(job.folder), 0.0
        self._process = subprocess.Popen(
            [sys.executable, program, *job.arguments],
            cwd=job.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._proc = Path("/proc", str(self._process.pid))

    def is_at_work(self) -> bool:
        """Whether it still runs; also records its processor time so far."""
        with suppress(OSError):
            fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))  # its own, and of those it has waited for
            self.cpu = max(self.cpu, ticks / os.sysconf("SC_CLK_TCK"))
        return self._process.poll() is None

    def has_started(self) -> bool:
        """Whether its first line has run, which sets the signal handlers."""
        with suppress(OSError):
            status = (self._proc / "status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)
            return bool(caught >> (signal.SIGTERM - 1) & 1)
        return False

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal; those of a terminal go to all its processes."""
        with suppress(ProcessLookupError):
            send = os.killpg if number in _TO_ALL else os.kill
            send(self._process.pid, number)

    def end(self) -> End:
        """Waits until it and all processes that it has started have ended."""
        try:
            output, errors = self._process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return End(None, "it or what it has started did not end")
        return End(self._process.returncode, errors, output)


# ------------------------------------------------------------------------------ the moments

_Moment = Callable[[_Process], bool]


def _first_line(process: _Process) -> bool:
    return process.has_started()


def _first_file(process: _Process) -> bool:
    return _files(process.folder) != process.before


def _within_a_file(number: int) -> _Moment:
    """The moment at which the file with that number, from 1, is being written."""
    seen = set()

    def come(process: _Process) -> bool:
        seen.update(path for path in _paths(process.folder) if "tmp" in path.name)
        return len(seen) >= number

    return come


def _at(cpu: float) -> _Moment:
    """The moment at which the command has used that many processor seconds."""
    return lambda process: process.cpu >= cpu


# Each maps (a position among all such moments, from 0 to 1; the command's processor seconds) to a
# moment.
_MOMENTS: dict[str, Callable[[float, float], _Moment]] = {
    "at its first line": lambda place, cpu: _first_line,
    "at its first file": lambda place, cpu: _first_file,
    "within a file": lambda place, cpu: _within_a_file(1 + int(8 * place)),
    "at random": lambda place, cpu: _at(place * cpu),
}


def _stop(process: _Process, number: signal.Signals, moment: _Moment) -> bool:
    """Sends the signal at the moment; returns whether the program had started then."""
    while process.is_at_work() and not moment(process):
        time.sleep(0.002)
    if not process.is_at_work():  # it ended before the moment
        return True
    started = process.has_started()
    process.send(number)
    return started


# -------------------------------------------------------------------------------- the tries


class _Campaign:
    def __init__(self, folder: Path, only: str, at_once: int):
        self._folder, self._numbers, self._at_once = folder, itertools.count(), at_once
        self._plan = {
            (program, number): moments
            for program, number in itertools.product(_PROGRAMS, _ENDS)
            if (moments := _matching(program, number, only))
        }
        programs = list(dict.fromkeys(program for program, _ in self._plan))
        needed = {each for name in programs for each in _PROGRAMS[name].needs.values()}
        last = max((_MADE.index(each) for each in needed if each in _MADE), default=-1)
        self._made = made.Made(folder / "made", at_once, wanted=_MADE[: last + 1])
        self._whole: dict[str, _Whole] = {}
        self._alone = {program: threading.Lock() for program in programs}

    def _start(self, program: str) -> tuple[_Process, programs.Job]:
        job = _PROGRAMS[program].job(
            self._made.folder, self._folder / "tries" / f"{next(self._numbers):05}"
        )
        return _Process(job), job

    def _never_stopped(self, program: str) -> _Whole:
        """Runs a program to its end, before its first try."""
        with self._alone[program]:
            if program not in self._whole:
                self._whole[program] = self._to_its_end(program)
        return self._whole[program]

    def _to_its_end(self, program: str) -> _Whole:
        process, job = self._start(program)
        while process.is_at_work():
            time.sleep(0.01)
        end = process.end()
        if end.code != 0:
            sys.exit(f"{job}: exit {end.code}\n{end.output}\n{end.errors}")
        return _Whole(_PROGRAMS[program].result(job.folder, end), _files(job.folder), process.cpu)

    def tries(self, seconds: float, seed: int) -> list[Try]:
        """Makes tries as long as there is time: each program and signal in turn, at each moment."""
        begin, rng = time.monotonic(), random.Random(seed)

        def planned() -> Iterator[tuple[str, signal.Signals, str, float]]:
            left = {of: rng.sample(moments, len(moments)) for of, moments in self._plan.items()}
            while left:
                for of in rng.sample(sorted(left), len(left)):
                    if time.monotonic() - begin > seconds:
                        return
                    moments = self._plan[of]
                    yield *of, left[of].pop() if left[of] else rng.choice(moments), rng.random()

        with ThreadPoolExecutor(self._at_once) as pool:
            waiting = []
            for each in planned():
                waiting.append(pool.submit(self._try, *each))
                while sum(not one.done() for one in waiting) >= self._at_once:
                    time.sleep(0.01)
            found = [one.result() for one in waiting]
        return sorted(found)

    def _try(self, program: str, number: signal.Signals, moment: str, place: float) -> Try:
        whole, command = self._never_stopped(program), _PROGRAMS[program]
        process, job = self._start(program)
        started = _stop(process, number, _MOMENTS[moment](place, whole.cpu))
        name = f"{moment} {place:.4f}" + (f", {_BEFORE}" if not started else "")
        outcome, detail = _judge_stopped(process.end(), number)
        if outcome is None:
            process = _Process(job)
            outcome, detail = self._judge_again(process.end(), command, job, whole)
        shutil.rmtree(job.folder)
        return Try(_group(program, number), name, outcome, detail)

    def _judge_again(
        self, end: End, command: made.Command, job: programs.Job, whole: _Whole
    ) -> tuple[str, str]:
        """Repeats the same command, and judges its end."""
        try:
            right = command.result(job.folder, end) == whole.result
        except Exception as error:  # a file is missing or cannot be read
            return TRACEBACK, f"then exit {end.code} without its result: {error!r}; {end.errors}"
        left = sorted(_files(job.folder) - whole.files)
        if left:
            return SILENT, f"left After: {', '.join(left)}"
        done = (0, 2) if right else (0,)  # 2: all had been made before
        return judge(end, right=right, done=done)


def _matching(program: str, number: signal.Signals, only: str) -> list[str]:
    """The moments that are to be tried."""
    return [each for each in _MOMENTS if fnmatchcase(f"{_group(program, number)}: {each}", only)]


def _judge_stopped(end: End, number: signal.Signals) -> tuple[str | None, str]:
    """The outcome of a program that was stopped; None if it ended as it should."""
    outcome, detail = judge(end, right=True, done=(0, *_ENDS[number]))
    if outcome in (TRACEBACK, ENDLESS):
        return outcome, detail
    lines = f"{end.errors}\n{end.output}".splitlines()
    reported = any(line.startswith(_WORDS) for line in lines)
    if end.code and number != signal.SIGKILL and not reported:
        return SILENT, f"exit {end.code} without a word of the signal"
    return None, ""


def _group(program: str, number: signal.Signals) -> str:
    return f"{program} {number.name}"


def main() -> None:
    """Reads the arguments, and exits with 1 if there is a finding."""
    options = arguments(__doc__).parse_args()
    # SIGINT may be ignored if this program runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    at_once = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="bertjax-campaign-") as name:
        folder = Path(name)
        programs.prepare_environment(folder)
        campaign = _Campaign(folder, options.only, at_once)
        tries = campaign.tries(60 * options.minutes, options.seed)
    sys.exit(report(tries, MEANT, options.output))


if __name__ == "__main__":
    main()
