"""What a notebook needs besides the doors: the device in words, and the curve of a run, live.

A TPU chip is held by one process at a time. So all that computes runs in a process of its own,
which gives the chip back when it ends; the notebook's own, which would keep it, never takes it.
"""

import collections
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from bertjax.errors import EXIT_STOPPED, InputError

_QUESTION = "import jax; d = jax.devices(); print(len(d), d[0].platform, d[0].device_kind)"
_LINES = 20  # of a program, that stay in sight


def check_device() -> None:
    """Prints what JAX computes on, and what to choose in Colab where that is only a CPU.

    Raises:
      InputError: JAX is not installed, or finds no device.
    """
    answer = subprocess.run([sys.executable, "-c", _QUESTION], capture_output=True, text=True)
    if answer.returncode:
        reason = answer.stderr.strip().rpartition("\n")[2]
        raise InputError(
            f"JAX does not start: {reason}. Where it is not installed, the cell that installs "
            "cures that; where another process holds the TPU, a restart of the session"
        )
    count, platform, kind = answer.stdout.strip().split(maxsplit=2)
    print(f"{platform.upper()}: JAX computes on {count} x {kind}")
    if platform == "cpu":
        print(
            "This is no TPU. Everything works on a CPU, too, but with these settings it takes days."
            "\nIn Colab: menu Runtime, Change runtime type, Hardware accelerator v5e-1 TPU, Save; "
            "then start again with the first cell."
        )


def run_with_curve(command: str, curve: str | os.PathLike) -> None:
    """Runs a program; shows its last lines, and a picture that it draws anew now and then.

    Where the cell is stopped, the program gets the signal to save itself; stopped once more, it
    ends at once.

    Args:
      command: as in a shell, but for variables, pipes and the like.
      curve: the picture; RUN/loss.png of a run.

    Raises:
      InputError: it ended with an error, which is in its last lines.
    """
    from IPython.display import Image, clear_output, display

    lines: collections.deque[str] = collections.deque(maxlen=_LINES)
    with subprocess.Popen(
        shlex.split(command),
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Jupyter's signal comes here only, and is handed on once
    ) as process:
        done = False
        while not done:
            try:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    clear_output(wait=True)
                    if Path(curve).exists():
                        display(Image(Path(curve).read_bytes()))
                    print(*lines, sep="\n", flush=True)
                done = True
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
    if process.returncode not in (0, EXIT_STOPPED):
        raise InputError(f"the program ended with code {process.returncode}: see its last lines")
