"""Checks, before the compilation, that all hosts are equal and can do their work.

If a check fails, all hosts raise an InputError, which says what is wrong on which host.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bertjax.base.cloud_storage import in_bucket
from bertjax.base.errors import InputError
from bertjax.base.files import sha256_of_file, size_in_words
from bertjax.base.shipped import PACKAGE
from bertjax.runs.read import flat
from bertjax.training.sharding.hosts import (
    all_gather,
    host_count,
    host_index,
    host_names,
    raise_together,
)

_PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "numpy")
_SHOWN = 4  # the most differences in one message


def check_programs(hosts: int | None = None) -> None:
    """Checks that every host runs the same program, and the number of hosts; uses no device.

    If a host had another libtpu, its devices might wait for the others for ever.
    """
    if hosts is not None and hosts != host_count():
        raise InputError(
            f"this job has {host_count()} host{'s' if host_count() > 1 else ''}, but the flag is "
            f"--hosts={hosts}: start the same command on every host, or correct the flag"
        )
    if host_count() > 1:
        check_same(_program())


def check_devices(chips: int | None = None) -> None:
    """Checks that every host has as many devices, and the number of chips of all hosts together."""
    check_same({"number of devices": jax.local_device_count()})
    found = _chips(jax.devices())
    if chips is not None and chips != found:
        raise InputError(
            f"this job has {found} chips ({len(jax.devices())} {jax.devices()[0].device_kind} "
            f"devices on {host_names(range(host_count()))}), but the flag is --chips={chips}: "
            "use a slice of that size, or correct the flag"
        )


def check_same(facts: Mapping[str, Any]) -> None:
    """Checks that `facts` are the same on every host."""
    differences = _differences(all_gather(dict(facts)))
    if differences:
        shown = "; ".join(differences[:_SHOWN])
        more = len(differences) - _SHOWN
        raise InputError(
            f"the hosts of this job differ: {shown}{f'; and {more} more' if more > 0 else ''}: "
            "give every host the same installation, config and corpus, and the same command"
        )


def facts_of(
    config_dict: Mapping[str, Any], folder: Path, content: Mapping[str, Any]
) -> dict[str, Any]:
    """What must be the same on all hosts: a run's config and folder, and what it reads."""
    config = {f"config.{key}": value for key, value in flat(config_dict).items()}
    return config | {"--workdir": str(folder)} | dict(content)


def check_folder(folder: Path, checkpoint_bytes: int, checkpoints: int) -> None:
    """Checks that all hosts can read and write the folder, and that it has room for checkpoints.

    It makes a folder that is missing. `checkpoints` is how many exist at the same time.
    """
    probe = folder / f".preflight-{all_gather(secrets.token_hex(8))[0]}"
    with contextlib.ExitStack() as written:
        with raise_together():
            if host_index() == 0:
                _write(folder, probe, written)
                _check_room(folder, checkpoint_bytes, checkpoints)
        with raise_together():
            if not probe.exists():
                raise InputError(
                    f"{folder} is not the folder that host 0 has under this name: all hosts must "
                    "use the same --workdir: gs://BUCKET/RUN, or a shared file system"
                )
            _write(folder, folder / f"{probe.name}-{host_index()}", written)


def _program() -> dict[str, str]:
    """The checksum of bertjax's files, and the versions of the packages that it uses."""
    facts = {
        f"bertjax/{path.relative_to(PACKAGE).as_posix()}": sha256_of_file(path)[:12]
        for path in PACKAGE.rglob("*.py")
    }
    facts["version of python"] = platform.python_version()
    for name in _PACKAGES:
        try:
            facts[f"version of {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[f"version of {name}"] = "not installed"
    return facts


def _differences(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each fact that is not the same on every host; `facts` are in order of hosts."""
    lines = []
    for name in sorted(set().union(*facts)):
        values = [json.dumps(host[name]) if name in host else "missing" for host in facts]
        usual = Counter(values).most_common(1)[0][0]
        other_values = [value for value in dict.fromkeys(values) if value != usual]
        other_values = [
            f"{value} on {host_names([i for i, found in enumerate(values) if found == value])}"
            for value in other_values
        ]
        if other_values:
            lines.append(f"{name} is {', '.join(other_values)}, {usual} on the others")
    return lines


def _chips(devices: Sequence[jax.Device]) -> int:
    """The number of chips. A chip of v2, v3 and v7x is two devices with the same coordinates."""
    places = [
        (getattr(device, "slice_index", 0), *device.coords)
        if hasattr(device, "coords")
        else device.id
        for device in devices
    ]
    return len(set(places))


def _write(folder: Path, file: Path, written: contextlib.ExitStack) -> None:
    """Writes an empty file, to be deleted when `written` is closed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        written.callback(file.unlink)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written ({error.strerror}): choose another --workdir"
        ) from error


def _check_room(folder: Path, checkpoint_bytes: int, checkpoints: int) -> None:
    """Checks the free space, to which earlier checkpoints count, because they will be deleted."""
    if in_bucket(folder):
        return
    free = shutil.disk_usage(folder).free
    if free >= checkpoint_bytes * checkpoints:
        return
    taken = sum(
        (Path(parent) / name).stat().st_size
        for parent, _, names in os.walk(folder / "checkpoints")
        for name in names
    )
    if free + taken < checkpoint_bytes * checkpoints:
        each, all_of_them = map(size_in_words, (checkpoint_bytes, checkpoints * checkpoint_bytes))
        raise InputError(
            f"{folder}: {size_in_words(free + taken)} free, {checkpoints} checkpoints of {each} "
            f"need {all_of_them}: free some space, choose another --workdir, or lower "
            "config.keep_checkpoints"
        )
