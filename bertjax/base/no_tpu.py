"""Tells libtpu that the machine has no TPU; otherwise it searches for one and prints errors."""

import os
from pathlib import Path

_WORDS = {
    "TPU_SKIP_MDS_QUERY": "1",  # the cloud's metadata server
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # any valid name
}
_GOOGLE = "0x1ae0"  # Google's PCI vendor number; JAX finds chips by it, too


def tell_libtpu() -> None:
    """Sets environment variables for libtpu that are not set; call it before using a device."""
    for variable, value in _WORDS.items():
        os.environ.setdefault(variable, value)


def tell_libtpu_where_none_is() -> None:
    """Calls `tell_libtpu` if the machine has no TPU."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    if not any(path.read_text().strip() == _GOOGLE for path in vendors):
        tell_libtpu()
