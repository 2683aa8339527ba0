"""Runs the stages of a study, each as its own process, one by one or several at a time."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bertjax.base.errors import EXIT_STOPPED
from bertjax.base.files import in_use, read_json, write_json
from bertjax.base.signals import STOPPING, catch_signals, stop_with_parent
from bertjax.lab.studies.study import Stage, folder_of

_SECONDS_BETWEEN_LOOKS = 0.2
LOGS = "logs"
TIMES_FILE = "times.json"
_STUDY = "BERTJAX_STUDY"  # in the environment of a stage: the number of the study's process


class Processes:
    """The running stages of a study.

    Args:
      folder: STUDY: gets logs/NAME.log with what each stage prints, and times.json.
      command: stage -> the command line that runs it.
      at_once: how many run at a time. Each has its own devices: a share of the cores on a CPU (all
        of them, if no other stage can run next to it), one GPU or one TPU chip.
    """

    def __init__(self, folder: Path, command: Callable[[Stage], Sequence[str]], at_once: int):
        self._folder, self._command, self._at_once = folder, command, at_once
        self._running: dict[int, tuple[Stage, subprocess.Popen, float]] = {}  # by its place
        self._told: set[str] = set()  # the stages for which a wait for another process was printed

    def run(self, stages: Sequence[Stage], done: set[str]) -> dict[str, str] | None:
        """Runs each stage as soon as the stages that it needs are done; adds to `done`.

        If a stage fails, the others still run, except those that need it. A stage whose folder
        another process uses waits for that process: it may have been started by hand, or still save
        after its study was killed.

        Returns:
          The name of each stage that failed -> the last line that it printed; None if a signal
          stopped the study. Then the stages were told to save and to end.
        """
        (self._folder / LOGS).mkdir(parents=True, exist_ok=True)
        waiting, failed = list(stages), {}

        def ready(stage: Stage) -> bool:
            return {each.name for each in stage.start} <= done

        with catch_signals(STOPPING) as stopping:
            while waiting or self._running:
                if stopping():
                    self._stop()
                    return None
                for stage in list(waiting):
                    if any(each.name in failed for each in stage.start):
                        waiting.remove(stage)
                        failed[stage.name] = "not run: a stage that it needs has failed"
                        print(f"{stage.name}: {failed[stage.name]}", flush=True)
                    elif self._free() and ready(stage) and not self._is_in_use(stage):
                        waiting.remove(stage)
                        alone = not self._running and not any(map(ready, waiting))
                        self._start(stage, alone)
                for stage, code, seconds in self._ended():
                    if code == EXIT_STOPPED:
                        self._stop()
                        return None
                    if code:
                        failed[stage.name] = _last_words(self._log(stage))
                        print(f"{stage.name}: failed: {failed[stage.name]}", flush=True)
                    else:
                        done.add(stage.name)
                        left = len(waiting) + len(self._running)
                        print(f"{stage.name}: done in {seconds:,.0f} s; {left} left", flush=True)
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        return failed

    def _is_in_use(self, stage: Stage) -> bool:
        """Whether another process uses the folder of a stage; if so, it is printed once."""
        folder = folder_of(stage, self._folder)
        used = in_use(folder)
        if used and stage.name not in self._told:
            self._told.add(stage.name)
            print(f"{stage.name}: waits for another process, which uses {folder}", flush=True)
        return used

    def _log(self, stage: Stage) -> Path:
        return self._folder / LOGS / f"{stage.name}.log"

    def _free(self) -> list[int]:
        return [place for place in range(self._at_once) if place not in self._running]

    def _start(self, stage: Stage, alone: bool) -> None:
        place = self._free()[0]
        log = self._log(stage)
        print(f"{stage.name}: begins; {log}", flush=True)
        with open(log, "ab") as output:
            with _cores_taken(place, 1 if alone else self._at_once):
                process = subprocess.Popen(
                    self._command(stage),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | devices_of(place, self._at_once) | {_STUDY: f"{os.getpid()}"},
                    start_new_session=True,  # Ctrl-C reaches it through this process alone
                )
        self._running[place] = stage, process, time.time()

    def _ended(self) -> list[tuple[Stage, int, float]]:
        ended = []
        for place, (stage, process, begin) in list(self._running.items()):
            if (code := process.poll()) is not None:
                del self._running[place]
                ended.append((stage, code, time.time() - begin))
                self._note(stage, ended[-1][-1])
        return ended

    def _stop(self) -> None:
        for _, process, _ in self._running.values():
            process.send_signal(signal.SIGTERM)
        for stage, process, begin in self._running.values():
            process.wait()
            self._note(stage, time.time() - begin)

    def _note(self, stage: Stage, seconds: float) -> None:
        known = seconds_of(self._folder)
        total = round(known.get(stage.name, 0.0) + seconds, 1)
        write_json(self._folder / TIMES_FILE, {**known, stage.name: total})


def seconds_of(folder: Path) -> Mapping[str, float]:
    """The seconds that each stage has taken, over all its attempts."""
    path = folder / TIMES_FILE
    if not path.exists():
        return {}
    return read_json(
        path, dict[str, float], hint="remove it: only the times of the stages are lost"
    )


def stop_with_study() -> None:
    """Makes this process save and end when its study does; does nothing if it has no study."""
    if study := os.environ.get(_STUDY):
        stop_with_parent(int(study))


def devices_of(place: int, at_once: int) -> dict[str, str]:
    """The environment in which a process sees its own GPU or TPU chip; {} if it runs alone."""
    if at_once == 1:
        return {}
    one = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
    return {"CUDA_VISIBLE_DEVICES": f"{place}", "TPU_VISIBLE_CHIPS": f"{place}"} | one


def cores_of(place: int, at_once: int) -> list[int]:
    """The cores of a process: every `at_once`-th one."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[place % len(cores) :: at_once] or [cores[place % len(cores)]]


def take_cores(place: int, at_once: int) -> None:
    """Restricts this thread, and what it starts, to its share of the cores, if the system can."""
    if at_once > 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores_of(place, at_once))


@contextlib.contextmanager
def _cores_taken(place: int, at_once: int) -> Iterator[None]:
    """Takes cores while the block runs: a process that it starts has them from the beginning."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    take_cores(place, at_once)
    try:
        yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def _last_words(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
