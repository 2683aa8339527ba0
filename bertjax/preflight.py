"""Preflight: what all hosts must have alike, and must be able to do, before the compile."""

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

from bertjax.buckets import in_bucket
from bertjax.errors import InputError
from bertjax.files import sha256_of_file, size_in_words
from bertjax.sharding.hosts import agreed, count, exchange, index, named

_PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "numpy")
_SHOWN = 4  # differences in one message


def check_programs(hosts: int | None = None) -> None:
    """That every host runs the same program, and all are there; touches no device.

    With another libtpu the devices of a host might wait for the others' for ever.

    Args:
      hosts: how many there must be; None: not checked.

    Raises:
      InputError: on all hosts: what differs, and where.
    """
    if hosts is not None and hosts != count():
        raise InputError(
            f"this job has {count()} host{'s' if count() > 1 else ''}, --hosts={hosts} was asked "
            "for: start the same command on every host, or correct the flag"
        )
    if count() > 1:
        check_same(_program())


def check_devices(chips: int | None = None) -> None:
    """That every host has as many devices, and all are there; before anything is compiled.

    Args:
      chips: how many there must be on all hosts; None: not checked.

    Raises:
      InputError: on all hosts: what is missing, and where.
    """
    check_same({"number of devices": jax.local_device_count()})
    found = _chips(jax.devices())
    if chips is not None and chips != found:
        raise InputError(
            f"this job has {found} chips ({len(jax.devices())} {jax.devices()[0].device_kind} "
            f"devices on {named(range(count()))}), --chips={chips} was asked for: take a slice of "
            "that size, or correct the flag"
        )


def check_same(facts: Mapping[str, Any]) -> None:
    """That every host has these facts.

    Raises:
      InputError: on all hosts: which fact differs, on which host, and how.
    """
    differences = _differences(exchange(dict(facts)))
    if differences:
        shown = "; ".join(differences[:_SHOWN])
        more = len(differences) - _SHOWN
        raise InputError(
            f"the hosts of this job differ: {shown}{f'; and {more} more' if more > 0 else ''}: "
            "give every host the same installation, config and corpus, and the same command"
        )


def check_folder(folder: Path, checkpoint_bytes: int, checkpoints: int) -> None:
    """That all hosts can read and write the one folder, and that checkpoints have room there.

    Args:
      folder: of the run; is made.
      checkpoint_bytes: of one checkpoint.
      checkpoints: how many lie there at a time.

    Raises:
      InputError: on all hosts: which host cannot do what.
    """
    probe = folder / f".preflight-{exchange(secrets.token_hex(8))[0]}"
    with contextlib.ExitStack() as written:
        with agreed():
            if index() == 0:
                _write(folder, probe, written)
                _check_room(folder, checkpoint_bytes, checkpoints)
        with agreed():
            if not probe.exists():
                raise InputError(
                    f"{folder} is not the folder that host 0 has under this name: --workdir must "
                    "be one place for all hosts: gs://BUCKET/RUN, or a file system that all mount"
                )
            _write(folder, folder / f"{probe.name}-{index()}", written)


def _program() -> dict[str, str]:
    """bertjax's files by their checksums, and the versions of what it runs on."""
    package = Path(__file__).parent
    facts = {
        f"bertjax/{path.relative_to(package).as_posix()}": sha256_of_file(path)[:12]
        for path in package.rglob("*.py")
    }
    facts["version of python"] = platform.python_version()
    for name in _PACKAGES:
        try:
            facts[f"version of {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[f"version of {name}"] = "not installed"
    return facts


def _differences(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each fact that is not the same on every host; `facts` by host."""
    lines = []
    for name in sorted(set().union(*facts)):
        values = [json.dumps(host[name]) if name in host else "missing" for host in facts]
        usual = Counter(values).most_common(1)[0][0]
        others = [value for value in dict.fromkeys(values) if value != usual]
        told = [
            f"{value} on {named([i for i, found in enumerate(values) if found == value])}"
            for value in others
        ]
        if told:
            lines.append(f"{name} is {', '.join(told)}, {usual} on the others")
    return lines


def _chips(devices: Sequence[jax.Device]) -> int:
    """v2, v3 and v7x show two devices a chip, at the same coordinates; a CPU device is a chip."""
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
    """Room for the coming checkpoints includes what earlier ones, to be deleted, take."""
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
