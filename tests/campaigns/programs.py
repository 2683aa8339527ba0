"""Runs programs of launch/ in separate processes, forked from one that has imported all modules.

The processes are forked from a server that has imported JAX and the programs, but has not asked
JAX for a device, so JAX has started no thread. Therefore a try does not have to import modules.
"""

import multiprocessing
import multiprocessing.connection
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outcome import End

REPOSITORY = Path(__file__).resolve().parents[2]
_FOLDERS = [str(REPOSITORY), str(REPOSITORY / "tests" / "campaigns")]
sys.path[:0] = _FOLDERS  # a program has only its own folder there

# The server imports these once.
_IMPORTED = (
    *(
        "bertjax.programs.compare_words",
        "bertjax.programs.compile_check",
        "bertjax.programs.complete",
        "bertjax.programs.convert",
        "bertjax.programs.ensemble",
        "bertjax.programs.evaluate",
    ),
    *(
        "bertjax.programs.extract_features",
        "bertjax.programs.fill_mask",
        "bertjax.programs.finetune",
    ),
    *(
        "bertjax.programs.predict",
        "bertjax.programs.prepare",
        "bertjax.programs.pretrain",
        "bertjax.programs.probe",
        "bertjax.programs.score",
    ),
    *(
        "bertjax.programs.show_sharding",
        "bertjax.programs.study",
        "bertjax.programs.watch",
        "ml_collections.config_flags",
        "matplotlib.figure",
    ),
    *("matplotlib.backends.backend_agg", "pyarrow.parquet", "scipy.stats", "sklearn.metrics"),
    *(
        "tensorboardX",
        "safetensors.numpy",
        "sentencepiece",
        "tiny_run",
        "outcome",
        "programs",
        "made",
    ),
)

# The limits of one program. Processor seconds are the same on a busy machine; the limit of wall
# time is for programs that wait for ever.
_CPU_SECONDS, _SECONDS = 60, 600
_MEMORY = 8 << 30  # bytes of address space
_LARGEST_FILE = 1 << 29  # bytes


class Job(NamedTuple):
    """One command line.

    Attributes:
      program: the name of a file in launch/.
      arguments: its flags.
      folder: the working directory.
      standard_input: the file for standard input; None: it is empty.
      before: a function that is called first in the new process, to change the program.
    """

    program: str
    arguments: tuple[str, ...]
    folder: Path
    standard_input: Path | None = None
    before: Callable[[], None] | None = None

    def __str__(self) -> str:
        return " ".join([self.program, *self.arguments])


def prepare_environment(folder: Path) -> None:
    """Sets the environment of the server and its processes to that of a plain installation.

    If the TPU compiler is installed, it stays available, because it refuses input of its own.

    Args:
      folder: a folder that is made; it gets the compiled programs, unless the environment names
        another place for them.
    """
    from tests.helpers.plain_environment import plain_environment
    from tests.helpers.xla_flags import xla_flags

    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = xla_flags(1)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # OpenBLAS would start threads when it is imported
    variables = plain_environment(folder / "plain")
    os.environ["PYTHONPATH"] = os.pathsep.join([variables["PYTHONPATH"], *_FOLDERS])
    refused = variables["REFUSED_MODULES"].split(",")
    os.environ["REFUSED_MODULES"] = ",".join(name for name in refused if name != "libtpu")


def run(jobs: Iterable[Job], at_once: int) -> Iterator[tuple[Job, End]]:
    """Runs all jobs; yields each with its end, in the order in which they end.

    Args:
      jobs: an iterable that is advanced when a process is free; so it may make the folders then.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    jobs, running = iter(jobs), {}
    while True:
        while len(running) < at_once and (job := next(jobs, None)) is not None:
            process = context.Process(target=_run_program, args=(job,))
            process.start()
            running[process.sentinel] = process, job, time.monotonic()
        if not running:
            return
        ended = multiprocessing.connection.wait(list(running), timeout=1)
        for sentinel, (process, job, begin) in list(running.items()):
            late = time.monotonic() - begin > _SECONDS
            if sentinel in ended or late:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and all that it has started
                process.join()
                code = None if late else process.exitcode
                process.close()
                del running[sentinel]
                yield job, _end(job, code)


def _end(job: Job, code: int | None) -> End:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        code = None
    errors, output = (_stream(job, name).read_bytes().decode(errors="replace") for name in _STREAMS)
    return End(code, errors, output)


_STREAMS = ("errors", "output")


def _stream(job: Job, name: str) -> Path:
    """A file next to the folder, so that the folder has only files of the program."""
    return job.folder.with_name(f"{job.folder.name}.{name}")


def _run_program(job: Job) -> None:
    """Runs `python launch/PROGRAM.py ARGUMENTS` in the new process."""
    os.setsid()
    given = os.open(job.standard_input or os.devnull, os.O_RDONLY)
    os.dup2(given, 0)
    sys.stdin = open(0, encoding="utf-8")
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(_stream(job, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(job.folder)
    for what, limit in (
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    if job.before:
        job.before()
    program = str(REPOSITORY / "launch" / f"{job.program}.py")
    sys.argv = [program, *job.arguments]
    runpy.run_path(program, run_name="__main__")
