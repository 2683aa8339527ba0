"""A job of several hosts on this machine: a process for each, with devices that are simulated."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.checkout import REPOSITORY
from tests.helpers.patience import PATIENCE
from tests.helpers.reserved_port import reserved_port
from tests.helpers.xla_flags import xla_flags


class Job:
    """A program of launch/ on all hosts of a job, started at the same time.

    All hosts except the first write files without permissions for others, so that a file's mode
    shows who wrote it.

    Args:
      folder: the folder for the config files.
      configs: the config of each host.
      flags: the flags after --workdir.
      program: its name.
      devices: those of each host.
      before: the folder of a sitecustomize.py, which Python runs before the command.
    """

    def __init__(
        self,
        folder: Path,
        configs: list[dict],
        run: Path,
        *flags: str,
        program: str = "pretrain",
        devices: int = 2,
        before: Path = REPOSITORY,
    ):
        self._reserved = contextlib.ExitStack()
        port = self._reserved.enter_context(reserved_port())
        self.hosts = []
        for index, config in enumerate(configs):
            file = folder / f"{run.name}_config_{index}.py"
            file.write_text(
                f"import ml_collections\n\n\ndef get_config():\n"
                f"    return ml_collections.ConfigDict({config!r})\n"
            )
            log = open(folder / f"{run.name}_{index}.log", "w+")
            path = REPOSITORY / "launch" / f"{program}.py"
            host = subprocess.Popen(
                [sys.executable, path, f"--config={file}", f"--workdir={run}", *flags],
                env=os.environ
                | {
                    "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
                    "BERTJAX_PROCESSES": str(len(configs)),
                    "BERTJAX_PROCESS": str(index),
                    "XLA_FLAGS": xla_flags(devices),
                    "PYTHONPATH": f"{before}:{REPOSITORY}",
                },
                umask=0o077 if index else 0o022,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            self.hosts.append((host, log))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host, log in self.hosts:
            host.kill()
            host.wait()
            log.close()
        self._reserved.close()

    def output(self, index: int) -> str:
        """The output of a host so far."""
        _, log = self.hosts[index]
        return Path(log.name).read_text()

    def outputs(self) -> str:
        """The outputs of all hosts so far, for the message of a failed test."""
        return "\n".join(f"--- host {i}\n{self.output(i)}" for i in range(len(self.hosts)))

    def wait_for(self, condition, seconds: float = PATIENCE) -> None:
        """Waits until `condition()`; fails if a host ends before."""
        end = time.monotonic() + seconds
        while not condition():
            for index, (host, _) in enumerate(self.hosts):
                assert host.poll() is None, self.output(index)
            assert time.monotonic() < end
            time.sleep(0.005)

    def ends(self, seconds: float = PATIENCE) -> list[int]:
        """The exit code of every host."""
        end = time.monotonic() + seconds
        return [host.wait(end - time.monotonic()) for host, _ in self.hosts]

    def completes(self) -> None:
        codes = self.ends()
        assert codes == [0] * len(codes), self.outputs()
