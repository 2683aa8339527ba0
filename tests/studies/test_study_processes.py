"""The processes of a study: their order, several at a time, failures, and stopping."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from bertjax.base.errors import EXIT_STOPPED
from bertjax.studies.processes import Processes, cores_of, devices_of, seconds_of
from bertjax.studies.study import Stage

A = Stage("a", "pretrain")
B = Stage("b", "pretrain")
OF_A = Stage("of-a", "finetune", start=(A,))
OF_BOTH = Stage("of-both", "ensemble", start=(OF_A, B))
ALL = [A, B, OF_A, OF_BOTH]


def _processes(folder, does, at_once=1):
    """Each stage writes its name into `order`, and then does what `does` says, in Python."""

    def command(stage):
        begin = f"open({str(folder / 'order')!r}, 'a').write({stage.name!r} + '\\n')"
        return [sys.executable, "-c", f"{begin}\n{does.get(stage.name, '')}"]

    return Processes(folder, command, at_once)


def _order(folder):
    return (folder / "order").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("at_once", [1, 3])
def test_stages_run_after_those_that_they_need(tmp_path, at_once):
    done = set()
    assert _processes(tmp_path, {}, at_once).run(ALL, done) == {}
    assert done == {stage.name for stage in ALL}
    order = _order(tmp_path)
    assert sorted(order) == sorted(done)
    assert order.index("a") < order.index("of-a") < order.index("of-both")
    assert order.index("b") < order.index("of-both")
    assert set(seconds_of(tmp_path)) == done


def test_what_is_done_is_not_run(tmp_path):
    assert _processes(tmp_path, {}).run([OF_A], {"a"}) == {}
    assert _order(tmp_path) == ["of-a"]


def test_a_failure_stops_only_what_needs_it(tmp_path, capfd):
    does = {"a": "print('begun')\nimport sys\nsys.exit('error: no such thing')"}
    failed = _processes(tmp_path, does).run(ALL, set())
    assert failed == {
        "a": "error: no such thing",
        "of-a": "not run: a stage that it needs has failed",
        "of-both": "not run: a stage that it needs has failed",
    }
    assert sorted(_order(tmp_path)) == ["a", "b"]
    assert "a: failed: error: no such thing" in capfd.readouterr().out
    assert "begun" in (tmp_path / "logs" / "a.log").read_text(encoding="utf-8")


def test_two_run_at_a_time_each_on_its_own_device(tmp_path):
    """Each of two stages waits until the other has begun."""
    waits = (
        "import os, time\nopen({mine!r}, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "while not os.path.exists({other!r}): time.sleep(0.01)"
    )
    files = {name: str(tmp_path / f"begun-{name}") for name in "ab"}
    does = {
        name: waits.format(mine=files[name], other=files[other]) for name, other in ("ab", "ba")
    }
    assert _processes(tmp_path, does, at_once=2).run([A, B], set()) == {}
    seen = {(tmp_path / f"begun-{name}").read_text(encoding="utf-8") for name in "ab"}
    assert seen == {"0", "1"}
    assert devices_of(0, 1) == {}
    cores = sorted(os.sched_getaffinity(0))
    shares = [cores_of(place, 2) for place in range(2)]
    assert sorted({core for share in shares for core in share}) == cores


def test_a_stage_that_nothing_can_run_beside_has_all_cores(tmp_path):
    writes = (
        "import os, time\ntime.sleep(0.2)\n"  # it takes them when it has begun
        "open({file!r}, 'w').write(str(len(os.sched_getaffinity(0))))"
    )
    files = {stage.name: str(tmp_path / f"cores-{stage.name}") for stage in ALL}
    does = {name: writes.format(file=file) for name, file in files.items()}
    assert _processes(tmp_path, does, at_once=2).run(ALL, set()) == {}
    seen = {name: int(Path(file).read_text("utf-8")) for name, file in files.items()}
    assert seen["of-both"] == len(os.sched_getaffinity(0))
    assert {"a": seen["a"], "b": seen["b"]} == {
        name: len(cores_of(place, 2)) for place, name in enumerate("ab")
    }


def test_a_signal_lets_the_stages_save(tmp_path):
    """The stage gets SIGTERM, and the study ends when it has ended."""
    saves = (
        "import signal, sys, time\n"
        f"def save(*_): open({str(tmp_path / 'saved')!r}, 'w'); sys.exit({EXIT_STOPPED})\n"
        f"signal.signal(signal.SIGTERM, save)\nopen({str(tmp_path / 'ready')!r}, 'w')\n"
        "while True: time.sleep(0.01)"
    )

    def interrupt():
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert _processes(tmp_path, {"a": saves}).run([A, B], set()) is None
    thread.join()
    assert (tmp_path / "saved").exists() and _order(tmp_path) == ["a"]
    (line,) = (tmp_path / "times.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["code"] == EXIT_STOPPED
