"""One host of a job that uses no device: `python host_job.py FOLDER` runs all cases.

It prints a JSON object: case -> its result on this host.
"""

import json
import sys
from pathlib import Path

import jax

from bertjax.base.errors import InputError
from bertjax.runs.preflight import check_folder, check_same
from bertjax.training.sharding import hosts


def _words(case) -> str:
    """The value or the error of a case, as text."""
    try:
        return repr(case())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _agree(faults: dict[int, BaseException]) -> None:
    with hosts.raise_together():
        if hosts.host_index() in faults:
            raise faults[hosts.host_index()]


def main(folder: Path) -> None:
    """Joins the other hosts, then runs each case together with them."""
    hosts.join_processes()
    me = hosts.host_index()
    cases = {
        "hosts": lambda: (me, hosts.host_count()),
        "compiled": lambda: jax.config.jax_compilation_cache_dir,
        "exchanges": lambda: [hosts.all_gather({"of": me, "n": n})[2 - n % 2] for n in range(12)],
        "all well": lambda: _agree({}),
        "one fault": lambda: _agree({1: InputError("no corpus")}),
        "two faults": lambda: _agree({0: InputError("no corpus"), 2: InputError("no corpus")}),
        "the same everywhere": lambda: _agree(dict.fromkeys(range(3), InputError("no corpus"))),
        "a bug": lambda: _agree({2: KeyError("x")}),
        "Ctrl-C": lambda: _agree({1: KeyboardInterrupt()}),
        "facts": lambda: check_same({"seed": 7 if me == 2 else 1, "corpus": "ab"}),
        "one folder": lambda: check_folder(folder / "one", 10, 3),
        "a folder each": lambda: check_folder(folder / str(me), 10, 3),
        "no room": lambda: check_folder(folder / "one", 2**60, 3),
    }
    print(json.dumps({name: _words(case) for name, case in cases.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
