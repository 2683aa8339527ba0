"""Tells libtpu, where it is installed, that no TPU is here: else it looks for one and complains."""

import os
from pathlib import Path

_WORDS = {
    "TPU_SKIP_MDS_QUERY": "1",  # the cloud's metadata server
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",  # any
}
_GOOGLE = "0x1ae0"  # a vendor of PCI devices: by it JAX looks for chips, too


def tell_libtpu() -> None:
    """To be called before a device is touched; what the environment says already stays."""
    for variable, value in _WORDS.items():
        os.environ.setdefault(variable, value)


def tell_libtpu_where_none_is() -> None:
    """The same, on a machine that has no TPU; to be called before JAX is imported."""
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    if not any(path.read_text().strip() == _GOOGLE for path in vendors):
        tell_libtpu()
