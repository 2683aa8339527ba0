"""Functions for a notebook: a check of the device, and a live picture of a run's loss.

Only one process at a time can use a TPU chip. So all computations run in separate processes, and
the notebook's own process, which would keep the chip, never uses it.
"""

import collections
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from bertjax.base.errors import EXIT_STOPPED, InputError

_QUESTION = "import jax; d = jax.devices(); print(len(d), d[0].platform, d[0].device_kind)"
_LINES = 20  # the last lines of a program's output that are shown


def check_device() -> None:
    """Prints JAX's device; if it is only a CPU, also what to choose in Colab.

    Raises InputError if JAX is not installed, or finds no device.
    """
    answer = subprocess.run([sys.executable, "-c", _QUESTION], capture_output=True, text=True)
    if answer.returncode:
        reason = answer.stderr.strip().rpartition("\n")[2]
        raise InputError(
            f"JAX does not start: {reason}. If JAX is not installed, run the cell that installs "
            "it; if another process uses the TPU, restart the session"
        )
    count, platform, device_kind = answer.stdout.strip().split(maxsplit=2)
    print(f"{platform.upper()}: JAX computes on {count} x {device_kind}")
    if platform == "cpu":
        print(
            "This is no TPU. Everything works on a CPU, too, but with these settings it takes days."
            "\nIn Colab: menu Runtime, Change runtime type, Hardware accelerator v5e-1 TPU, Save; "
            "then start again with the first cell."
        )


def run_with_curve(command: str, curve: str | os.PathLike) -> None:
    """Runs a program, and shows its last lines and a picture that the program updates.

    If the user stops the cell, the program gets a signal and saves its state. If the user stops it
    again, the program ends at once.

    Args:
      command: a shell command without variables, pipes and the like.
      curve: the picture, such as RUN/loss.png of a run.

    Raises:
      InputError: the program ended with an error, which is in its last lines.
    """
    from IPython.display import Image, clear_output, display

    lines: collections.deque[str] = collections.deque(maxlen=_LINES)
    with subprocess.Popen(
        shlex.split(command),
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Jupyter's signal reaches only this process, which forwards it
    ) as process:
        assert process.stdout  # it is the pipe above
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
