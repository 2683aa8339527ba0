"""The report of a benchmark of long runs, which goes on where an earlier command has stopped."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def started(output: Path, packages: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    """The report in `output`; if there is none, a new one with the machine and these fields.

    Args:
      packages: those whose versions a new report names.
    """
    if output.exists():
        return json.loads(output.read_text(encoding="utf-8"))
    machine = {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in packages},
    }
    return machine | fields
