"""The processes of a study: their order, several at a time, failures, and stopping."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bertjax.base.errors import EXIT_STOPPED, InputError
from bertjax.base.files import exclusive
from bertjax.lab.studies.processes import Processes, cores_of, devices_of, seconds_of
from bertjax.lab.studies.study import Stage
from tests.helpers.patience import PATIENCE

A = Stage("a", "pretrain")
B = Stage("b", "pretrain")
OF_A = Stage("of-a", "finetune", start=(A,))
OF_BOTH = Stage("of-both", "ensemble", start=(OF_A, B))
ALL = [A, B, OF_A, OF_BOTH]


def _processes(folder, does, at_once=1):
    """Each stage writes its name into `order`, does what `does` says, in Python, and writes "-"."""

    def command(stage):
        name, end = (
            f"open({str(folder / 'order')!r}, 'a').write({word!r} + '\\n')"
            for word in (stage.name, f"-{stage.name}")
        )
        return [sys.executable, "-c", f"{name}\n{does.get(stage.name, '')}\n{end}"]

    return Processes(folder, command, at_once)


def _events(folder):
    return (folder / "order").read_text(encoding="utf-8").split()


def _order(folder):
    """The stages in the order in which they began."""
    return [event for event in _events(folder) if not event.startswith("-")]


@pytest.mark.parametrize("at_once", [1, 3])
def test_stages_run_after_those_that_they_need(tmp_path, at_once):
    """A stage begins when those that it needs have ended, in whatever order they are given."""
    done, slow = (
        set(),
        "import time\ntime.sleep(0.5)",
    )  # one that begins too early is before its end
    assert _processes(tmp_path, {"a": slow, "of-a": slow}, at_once).run(ALL[::-1], done) == {}
    assert done == {stage.name for stage in ALL}
    events = _events(tmp_path)
    assert sorted(events) == sorted([*done, *(f"-{name}" for name in done)])
    for stage in ALL:
        for needed in stage.start:
            assert events.index(f"-{needed.name}") < events.index(stage.name)
    assert set(seconds_of(tmp_path)) == done


def test_the_seconds_of_all_attempts_are_added(tmp_path):
    assert seconds_of(tmp_path) == {}
    (tmp_path / "times.json").write_text('{"a": 1000, "b": 7.5}', encoding="utf-8")
    assert _processes(tmp_path, {"a": "raise SystemExit(1)"}).run([A], set()).keys() == {"a"}
    first = seconds_of(tmp_path)
    assert _processes(tmp_path, {}).run([A], set()) == {}
    second = seconds_of(tmp_path)
    assert 1000 < first["a"] < second["a"] < 2000
    assert first["b"] == second["b"] == 7.5
    (tmp_path / "times.json").write_text('{"a": 10', encoding="utf-8")
    with pytest.raises(InputError, match="times.json: damaged.* remove it: only the times"):
        seconds_of(tmp_path)


def test_what_is_done_is_not_run(tmp_path):
    assert _processes(tmp_path, {}).run([OF_A], {"a"}) == {}
    assert _order(tmp_path) == ["of-a"]


def test_a_failure_stops_only_what_needs_it(tmp_path, capfd):
    does = {"a": "print('started')\nimport sys\nsys.exit('error: no such thing')"}
    failed = _processes(tmp_path, does).run(ALL, set())
    assert failed == {
        "a": "error: no such thing",
        "of-a": "not run: a stage that it needs has failed",
        "of-both": "not run: a stage that it needs has failed",
    }
    assert sorted(_order(tmp_path)) == ["a", "b"]
    assert "a: failed: error: no such thing" in capfd.readouterr().out
    assert "started" in (tmp_path / "logs" / "a.log").read_text(encoding="utf-8")


def test_two_run_at_a_time_each_on_its_own_device(tmp_path):
    """Each of two stages waits until the other has started."""
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
    assert devices_of(1, 2) == {
        **{"CUDA_VISIBLE_DEVICES": "1", "TPU_VISIBLE_CHIPS": "1"},
        **{"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"},
    }


def test_shares_of_the_cores_do_not_overlap(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9, 2, 3, 4, 5, 6, 7})
    assert [cores_of(place, 3) for place in range(3)] == [[2, 5, 9], [3, 6], [4, 7]]
    assert cores_of(0, 1) == [2, 3, 4, 5, 6, 7, 9]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5})
    assert [cores_of(place, 3) for place in range(3)] == [[4], [5], [4]]  # too few for all


def test_a_stage_that_nothing_can_run_beside_has_all_cores(tmp_path):
    writes = "import os\nopen({file!r}, 'w').write(str(len(os.sched_getaffinity(0))))"
    files = {stage.name: str(tmp_path / f"cores-{stage.name}") for stage in ALL}
    does = {name: writes.format(file=file) for name, file in files.items()}
    before = os.sched_getaffinity(0)
    assert _processes(tmp_path, does, at_once=2).run(ALL, set()) == {}
    assert os.sched_getaffinity(0) == before
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
    assert seconds_of(tmp_path).keys() == {"a"}


_KILLED = """
import sys
from pathlib import Path
from bertjax.lab.studies.processes import Processes
from bertjax.lab.studies.study import Stage

Processes(Path(sys.argv[1]), lambda _: [sys.executable, "-c", sys.argv[2]], 1).run(
    [Stage("a", "pretrain")], set()
)
"""


def test_a_stage_saves_and_ends_with_its_study(tmp_path):
    """The study is killed as the out-of-memory killer does; the stage notices it."""
    saves = (
        "import os, signal, sys, time\n"
        "from bertjax.lab.studies.processes import stop_with_study\n"
        f"def save(*_): open({str(tmp_path / 'saved')!r}, 'w'); sys.exit({EXIT_STOPPED})\n"
        "signal.signal(signal.SIGTERM, save)\nstop_with_study()\n"
        f"open({str(tmp_path / 'ready')!r}, 'w')\n"
        f"for _ in range({100 * int(PATIENCE)}): time.sleep(0.01)"
    )
    study = subprocess.Popen([sys.executable, "-c", _KILLED, tmp_path, saves])
    _wait_for(tmp_path / "ready")
    assert not (tmp_path / "saved").exists()
    study.kill()
    study.wait()
    _wait_for(tmp_path / "saved")


def _wait_for(path):
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_stage_waits_for_another_process_in_its_folder(tmp_path, capfd):
    """The others run; it begins when the other process has ended."""

    def uses(taken):
        with exclusive(tmp_path / "runs" / "a"):
            taken.set()
            while "-b" not in (_events(tmp_path) if (tmp_path / "order").exists() else ()):
                time.sleep(0.01)

    taken = threading.Event()
    thread = threading.Thread(target=uses, args=(taken,))
    thread.start()
    taken.wait()
    assert _processes(tmp_path, {}, at_once=2).run([A, B], set()) == {}
    thread.join()
    assert _order(tmp_path) == ["b", "a"]
    told = f"a: waits for another process, which uses {tmp_path / 'runs' / 'a'}"
    assert capfd.readouterr().out.splitlines().count(told) == 1
